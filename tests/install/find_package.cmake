# Builds and runs the project outside/ against the build tree, a fresh install tree, or an unpacked Debian package of
# gradus.
# usage: cmake -DTREE=build|install|package -DBUILD_DIR=… -DWORK_DIR=… -DCOMPILER=… -DVERSION=… -P find_package.cmake
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(status)
    string(JOIN " " command ${ARGN})
    message(FATAL_ERROR "${command}\nended with ${status}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
set(prefix ${BUILD_DIR})
if(TREE STREQUAL "install")
  set(prefix ${WORK_DIR}/prefix)
  run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})
elseif(TREE STREQUAL "package")
  set(prefix ${WORK_DIR}/root/usr)
  cmake_path(GET CMAKE_COMMAND PARENT_PATH programs)
  run(${programs}/cpack -G DEB --config ${BUILD_DIR}/CPackConfig.cmake -B ${WORK_DIR}/cpack)
  file(GLOB package ${WORK_DIR}/cpack/gradus_${VERSION}*.deb)
  run(dpkg-deb -x ${package} ${WORK_DIR}/root)
  run(${prefix}/bin/gradus-info --help)
endif()

run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/outside -B ${WORK_DIR}/build -DCMAKE_PREFIX_PATH=${prefix}
    -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_BUILD_TYPE=Release -DWANTED_VERSION=${VERSION}
    -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF)
if(NOT output MATCHES "gradus found in ${prefix}")
  message(FATAL_ERROR "find_package found another gradus:\n${output}")
endif()
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run(${WORK_DIR}/build/outside)
if(NOT output MATCHES "gradus ${VERSION}")
  message(FATAL_ERROR "outside printed:\n${output}")
endif()
message(STATUS "outside, built against the ${TREE} tree, printed: ${output}")
