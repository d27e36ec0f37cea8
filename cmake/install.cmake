# Headers, library and package files: find_package(gradus CONFIG) works from the build tree and once installed.
include(CMakePackageConfigHelpers)

install(TARGETS gradus EXPORT gradusTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(GRADUS_BUILD_LAUNCHER)
  install(TARGETS gradus-run DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES gradus.h torch.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gradus)
install(DIRECTORY core autograd layers optim data training distributed DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gradus
        FILES_MATCHING PATTERN "*.h")

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gradus)
configure_file(cmake/gradusConfig.cmake.in gradusConfig.cmake @ONLY)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gradusConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT gradusTargets NAMESPACE gradus:: DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/gradusConfig.cmake ${PROJECT_BINARY_DIR}/gradusConfigVersion.cmake
        DESTINATION ${package_dir})
export(EXPORT gradusTargets NAMESPACE gradus:: FILE ${PROJECT_BINARY_DIR}/gradusTargets.cmake)
