# Compiler settings and the three helpers that every CMakeLists.txt here uses.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(THREADS_PREFER_PTHREAD_FLAG ON)

find_program(KEVAL_CCACHE ccache)
if(KEVAL_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${KEVAL_CCACHE}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${KEVAL_CCACHE}")
endif()

add_library(keval_flags INTERFACE)
target_compile_options(keval_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Werror -Wno-missing-field-initializers>)
target_include_directories(keval_flags INTERFACE "${CMAKE_SOURCE_DIR}")

if(KEVAL_SANITIZER STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(KEVAL_SANITIZER STREQUAL "thread")
  # Code that sees __SANITIZE_THREAD__ gives protobuf's map fields two members more than the packaged libprotobuf was
  # built with (google/protobuf/map_field.h). Only the standard library needs to know, by the macro it derives from it.
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -U__SANITIZE_THREAD__ -D_GLIBCXX_TSAN=1)
  add_link_options(-fsanitize=thread)
elseif(NOT KEVAL_SANITIZER STREQUAL "")
  message(FATAL_ERROR "KEVAL_SANITIZER must be empty, 'address' or 'thread', not '${KEVAL_SANITIZER}'")
endif()

# Where tests find their cases and the programs they start. A bundle for another machine sets both relative to the
# folder that its tests are started in (scripts/gpu/bundle).
set(KEVAL_TEST_SOURCE_DIR "${CMAKE_SOURCE_DIR}" CACHE STRING "Repository root as tests see it")
set(KEVAL_TEST_BIN_DIR "${CMAKE_BINARY_DIR}/bin" CACHE STRING "Folder of kevald, keval-worker and keval as tests see it")
mark_as_advanced(KEVAL_TEST_SOURCE_DIR KEVAL_TEST_BIN_DIR)

# keval_library(NAME SOURCES ... [PUBLIC targets...] [PRIVATE targets...])
function(keval_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  # Not keval_flags for those who link an installation: our warnings and include folders are not theirs.
  target_link_libraries(${name} PUBLIC $<BUILD_INTERFACE:keval_flags> ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
endfunction()

# keval_program(NAME SOURCES ... LINK targets...): a program of ours, in build/<preset>/bin.
function(keval_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE keval_flags ${ARG_LINK})
endfunction()

# Every unit test and what it needs: all that the sanitizer presets build in CI.
if(KEVAL_BUILD_TESTS)
  add_custom_target(keval_unit_tests)
endif()

# keval_test(NAME SOURCES ... LINK targets... [LABELS unit|integration|...] [TIMEOUT seconds] [ENVIRONMENT k=v...])
# One GoogleTest program; each TEST becomes a ctest case. A program with no test fails at discovery.
function(keval_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINK;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  target_link_libraries(${name} PRIVATE keval_flags ${ARG_LINK} GTest::gmock GTest::gtest_main)
  if("unit" IN_LIST ARG_LABELS)
    add_dependencies(keval_unit_tests ${name})
  endif()
  target_compile_definitions(${name} PRIVATE
    KEVAL_TEST_CASES_DIR="${KEVAL_TEST_SOURCE_DIR}/tests/cases" KEVAL_BIN_DIR="${KEVAL_TEST_BIN_DIR}"
    KEVAL_SOURCE_DIR="${KEVAL_TEST_SOURCE_DIR}")
  # PRE_TEST: a CUDA build's tests may not start on the machine that built them, and a build need not run anything.
  # NO_PRETTY_VALUES: a case is listed by the name its parameter was given, not by that parameter's print-out.
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120 NO_PRETTY_VALUES
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "${ARG_ENVIRONMENT}")
endfunction()
