"""The messages of proto/keval/v1, whose comments say what each field means."""
