# What a user may choose, and the compiler flags of everything that is built here.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug, RelWithDebInfo or MinSizeRel" FORCE)
endif()

option(GRADUS_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(GRADUS_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(GRADUS_BUILD_LAUNCHER "Build gradus-run and gradus-info" ${PROJECT_IS_TOP_LEVEL})
option(GRADUS_BUILD_BENCHMARKS "Build the benchmarks" OFF)
option(GRADUS_BUILD_FUZZERS "Build the libFuzzer targets (clang)" OFF)
option(GRADUS_UNITY_BUILD "Compile several source files of a folder as one, which takes a third of the time" ON)
set(GRADUS_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them: address,undefined or thread")

set(GRADUS_CUDA_COMPILE_PTX_FOR "" CACHE STRING
    "A newer architecture (90): PTX of the entries '-virtual' of CMAKE_CUDA_ARCHITECTURES is compiled for it in the build")

foreach(part CUDA CUDNN NCCL MPI OPENMP)
  # A project that has gradus by FetchContent gets what every machine has, unless it asks for more.
  set(default AUTO)
  if(NOT PROJECT_IS_TOP_LEVEL AND NOT part STREQUAL "OPENMP")
    set(default OFF)
  endif()
  set(GRADUS_${part} ${default} CACHE STRING "AUTO (if found), ON (required) or OFF")
  set_property(CACHE GRADUS_${part} PROPERTY STRINGS AUTO ON OFF)
endforeach()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)

# Contraction would round differently from one compiler and instruction set to the next.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
if(PROJECT_IS_TOP_LEVEL)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # False alarms on std::string (GCC bug 105651), and on what it is made of where headers are precompiled.
    add_compile_options(
      "$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict;-Wno-stringop-overflow;-Wno-stringop-overread;-Wno-array-bounds>")
  endif()
endif()
if(GRADUS_SANITIZE)
  add_compile_options(-fsanitize=${GRADUS_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${GRADUS_SANITIZE})
endif()
