# The CUDA backend. Only register.cpp asks whether it is there.
file(GLOB cuda_sources CONFIGURE_DEPENDS backends/cuda/*.cu backends/cuda/*.cpp)
target_sources(gradus PRIVATE ${cuda_sources})
target_compile_options(gradus PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-ffp-contract=off>")
target_link_libraries(gradus PRIVATE CUDA::cudart_static CUDA::cublas)
set_target_properties(gradus PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON)
if(cuda_sources)
  set_source_files_properties(backends/register.cpp PROPERTIES COMPILE_DEFINITIONS GRADUS_WITH_CUDA=1)
endif()
