# What a build under sanitizers does otherwise, so that it and its tests take minutes.

# Under UBSan these files take minutes to compile; the baseline's file, the same code for narrower vectors, stays under it.
if(GRADUS_SANITIZE MATCHES "undefined")
  set_property(SOURCE ${avx2_sources} ${avx512_sources} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=undefined)
endif()
# AddressSanitizer's checks as calls: inline, one for each lane, these files took a minute and a half to compile.
if(GRADUS_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set_property(SOURCE ${avx2_sources} ${avx512_sources} APPEND PROPERTY
               COMPILE_OPTIONS -mllvm -asan-instrumentation-with-call-threshold=0)
endif()

# The reference loops have no threads: watched by ThreadSanitizer they took half of the tests' time.
if(GRADUS_SANITIZE MATCHES "thread")
  set(naive_sources ${gradus_sources})
  list(FILTER naive_sources INCLUDE REGEX "backends/naive/")
  set_property(SOURCE ${naive_sources} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=thread -O2)
  set_source_files_properties(${naive_sources} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
endif()
