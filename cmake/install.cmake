# Headers, library and package files: find_package(gradus CONFIG) works from the build tree and once installed.
include(CMakePackageConfigHelpers)

install(TARGETS gradus gradus_heart gradus_backends gradus_distributed gradus_libtorch ${room_targets}
        EXPORT gradusTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(GRADUS_BUILD_LAUNCHER)
  install(TARGETS gradus-run gradus-info DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES gradus.h torch.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gradus)
install(DIRECTORY core autograd layers optim data training graph inspect onnx compat distributed
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gradus
        FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${PROJECT_BINARY_DIR}/include/gradus_libtorch DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES scripts/gdb/gradus.py DESTINATION ${CMAKE_INSTALL_DATADIR}/gradus/gdb)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gradus)
list(JOIN rooms ", " component_names)
string(PREPEND component_names "heart, backends, distributed, ")
configure_file(cmake/gradusConfig.cmake.in gradusConfig.cmake @ONLY)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gradusConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT gradusTargets NAMESPACE gradus:: DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/gradusConfig.cmake ${PROJECT_BINARY_DIR}/gradusConfigVersion.cmake
        DESTINATION ${package_dir})
export(EXPORT gradusTargets NAMESPACE gradus:: FILE ${PROJECT_BINARY_DIR}/gradusTargets.cmake)

# cpack -G DEB: what `cmake --install` installs, as a package for Debian and Ubuntu.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME gradus)
set(CPACK_PACKAGE_CONTACT "the authors of gradus")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "deep-learning mini-framework: library, headers, launcher")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libstdc++6, zlib1g-dev, libssl-dev")
if(GRADUS_WITH_OPENMP)
  string(APPEND CPACK_DEBIAN_PACKAGE_DEPENDS ", libgomp1")
endif()
if(GRADUS_WITH_MPI)  # the one that was found, or that the system prefers
  set(mpi_package mpi-default-dev)
  foreach(library openmpi mpich)
    if("${MPI_CXX_LIBRARIES}" MATCHES "${library}")
      set(mpi_package lib${library}-dev)
    endif()
  endforeach()
  string(APPEND CPACK_DEBIAN_PACKAGE_DEPENDS ", ${mpi_package}")
endif()
include(CPack)
