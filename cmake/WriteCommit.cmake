# Run at each build: writes OUTPUT, a header with the commit that SOURCE_DIR is at, "-dirty" where tracked files differ
# from it, or COMMIT where that isn't a git checkout. Untouched where nothing changed, so that nothing is compiled anew.
execute_process(COMMAND git -C "${SOURCE_DIR}" describe --always --dirty --abbrev=12 --match=no-tag
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "${COMMIT}")
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "#define KEVAL_COMMIT \"${commit}\"\n")
