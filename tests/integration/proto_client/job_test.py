"""A benchmark job from its creation to its report, and its end before that."""

import csv
import io
import json
import unittest

import grpc

from kevald import KevaldTest


class JobTest(KevaldTest):
    def small_spec(self, looks=4):
        """Calls of microseconds: what is tested is the way there and back, not the verdict."""
        v1 = self.v1
        shape = v1.Shape(num_tokens=16, hidden_size=8, vocab_size=64, bias=True)
        return v1.BenchmarkSpec(
            display_name="from the proto alone",
            target=v1.Target(device="cpu", force_variant=True),
            primaries=[shape],
            procedure=v1.Procedure(
                looks=[looks],
                a_sup=[0.005],
                a_eq=[0.005],
                a_ctl=[0.005],
                quads=3,
                timed_repetitions=2,
                discarded_repetitions=1,
            ),
            margins={"primary": 0.05},
            seed=9007199254740993,  # More than a double holds.
        )

    def create(self, spec, **fields):
        return self.client.benchmarks.Create(self.v1.CreateJobRequest(spec=spec, **fields))

    def get(self, name):
        return self.client.benchmarks.Get(self.v1.GetJobRequest(name=name))

    def watch(self, name, **fields):
        return self.client.benchmarks.Watch(self.v1.WatchJobRequest(name=name, **fields), timeout=240)

    def test_a_job_to_its_report(self):
        planned = self.create(self.small_spec(), validate_only=True)
        self.assertEqual(planned.name, "")
        self.assertEqual(planned.rounds_planned, 4)

        job = self.create(self.small_spec(), request_id="one")
        self.assertRegex(job.name, "^jobs/[0-9a-f]{32}$")
        self.assertEqual(job.spec.seed, 9007199254740993)
        self.assertEqual(job.spec_digest, planned.spec_digest)
        self.assertEqual(job.spec.base.variant, "portable_matmul_add")
        self.assertEqual(self.create(self.small_spec(), request_id="one").name, job.name)
        other = self.small_spec(looks=5)
        self.assertEqual(self.refused_field(lambda: self.create(other, request_id="one")), "request_id")
        early = self.v1.GetReportRequest(name=job.name)
        self.refusal(grpc.StatusCode.FAILED_PRECONDITION, lambda: list(self.client.benchmarks.GetReport(early)))

        events = list(self.watch(job.name, progress=True))
        kept = [event for event in events if event.sequence > 0]
        self.assertEqual([event.sequence for event in kept], list(range(1, len(kept) + 1)))
        self.assertTrue(all(event.HasField("progress") for event in events if event.sequence == 0))
        kinds = {event.WhichOneof("event") for event in kept}
        self.assertLessEqual({"job", "round_done", "look"}, kinds)
        done = self.get(job.name)
        self.assertEqual(done.state, self.v1.BenchmarkJob.DONE, done)
        self.assertIn(done.verdict, ("IMPROVED", "EQUIVALENT", "REGRESSED", "INCONCLUSIVE"), done)
        self.assertEqual(kept[-1].job.verdict, done.verdict)
        # Replayed from the middle.
        self.assertEqual(list(self.watch(job.name, after_sequence=3)), kept[3:])

        report = self.client.report(job.name)
        self.assertEqual(set(report), {"report.json", "samples.csv", "diagnostics.csv", "excluded.csv"})
        self.assertIn(done.verdict, report["report.json"].decode())
        json.loads(report["report.json"])
        rounds = {row["round"] for row in csv.DictReader(io.StringIO(report["samples.csv"].decode()))}
        self.assertEqual(len(rounds), done.rounds_done)
        self.assertEqual(set(self.client.report(job.name, "samples.csv")), {"samples.csv"})
        self.refusal(grpc.StatusCode.INVALID_ARGUMENT, lambda: self.client.report(job.name, "no_such_file"))

        jobs = self.client.benchmarks.List(self.v1.ListJobsRequest(spec_digest=job.spec_digest)).jobs
        self.assertIn(job.name, [listed.name for listed in jobs])
        ended = self.client.benchmarks.Cancel(self.v1.CancelJobRequest(name=job.name))
        self.assertEqual(ended.state, self.v1.BenchmarkJob.DONE)

    def test_cancel_while_it_runs(self):
        job = self.create(self.small_spec(looks=200))
        events = self.watch(job.name)
        for event in events:
            if event.HasField("round_done"):
                break
        self.client.benchmarks.Cancel(self.v1.CancelJobRequest(name=job.name))
        rest = list(events)  # The stream ends with the job.
        self.assertEqual(rest[-1].job.state, self.v1.BenchmarkJob.CANCELLED)
        self.assertEqual(self.get(job.name).state, self.v1.BenchmarkJob.CANCELLED)
        self.assertIn("report.json", self.client.report(job.name))

    def test_newest_first_in_pages(self):
        names = [self.create(self.small_spec(looks=200)).name for _ in range(3)]
        for name in names:
            self.client.benchmarks.Cancel(self.v1.CancelJobRequest(name=name))
        listed, token = [], ""
        for _ in range(3):
            page = self.client.benchmarks.List(self.v1.ListJobsRequest(page_size=1, page_token=token))
            listed += [job.name for job in page.jobs]
            token = page.next_page_token
        self.assertEqual(listed, names[::-1])

    def test_refusals_name_the_field(self):
        cases = {
            "primaries": lambda spec: spec.ClearField("primaries"),
            "primaries[0].vocab_size": lambda spec: setattr(spec.primaries[0], "vocab_size", -1),
            "procedure.quads": lambda spec: setattr(spec.procedure, "quads", 2),
            "candidate.variant": lambda spec: setattr(spec.candidate, "variant", "no such variant"),
        }
        for field, spoil in cases.items():
            with self.subTest(field=field):
                spec = self.small_spec()
                spoil(spec)
                self.assertEqual(self.refused_field(lambda: self.create(spec)), field)
        unknown = "jobs/" + "0" * 32
        self.refusal(grpc.StatusCode.NOT_FOUND, lambda: self.get(unknown))
        self.refusal(grpc.StatusCode.NOT_FOUND, lambda: list(self.watch(unknown)))
        self.refusal(grpc.StatusCode.NOT_FOUND, lambda: self.client.report(unknown))


if __name__ == "__main__":
    unittest.main()
