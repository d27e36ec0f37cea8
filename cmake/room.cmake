# A room is a folder of the library and a target: gradus_room(core …) makes gradus_core, which is gradus::core for users.
#
#   gradus_room(NAME [FOLDERS folder…] [EXCLUDE file…] [APART file…] [OPTIMISE -O1] [OWN_OPTIONS]
#               [LINK room or library…] [REGISTER])
#
# Its sources are the .cpp files of the folder and of FOLDERS in it. Unity builds leave APART alone: files that take long,
# or that use a name which another file of their unit has, too, in an anonymous namespace. OPTIMISE replaces -O3 in
# Release builds, where that saves compile time and costs no speed; with -O1, sanitizers' builds do not optimise the room
# at all, which takes half the time to compile. Rooms with the same OPTIMISE share a precompiled header; OWN_OPTIONS is
# for a room with further options, which has one of its own. LINK names what users of the room link as well. REGISTER is
# for rooms with a register.cpp: programs that link the room contain that file, although nothing refers to it
# (core/registry.h).
set(gradus_standard_headers
    <algorithm> <array> <atomic> <cmath> <cstdint> <cstring> <functional> <limits> <map> <memory> <mutex> <optional>
    <sstream> <string> <string_view> <thread> <tuple> <type_traits> <unordered_map> <utility> <variant> <vector>)
# Rooms with parsers. In sanitizers' builds they have options of their own: tests/fuzz adds one, and they stay optimised.
set(gradus_fuzzed_rooms core data comm)

function(gradus_room name)
  cmake_parse_arguments(PARSE_ARGV 1 room "REGISTER;OWN_OPTIONS" "OPTIMISE" "FOLDERS;EXCLUDE;APART;LINK")
  set(target gradus_${name})
  add_library(${target} STATIC)
  add_library(gradus::${name} ALIAS ${target})
  set_property(GLOBAL APPEND PROPERTY GRADUS_ROOMS ${name})
  foreach(folder IN ITEMS . LISTS room_FOLDERS)
    file(GLOB files CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${folder}/*.cpp)
    list(REMOVE_ITEM files "" ${room_EXCLUDE})
    target_sources(${target} PRIVATE ${files})
    # In a unity build, up to twelve files of a folder are one unit, and so are the files that are alone in their folder.
    string(MAKE_C_IDENTIFIER ${folder} folder)
    list(LENGTH files count)
    if(count EQUAL 1)
      set(folder single)
    endif()
    set(number 0)
    foreach(file IN LISTS files)
      math(EXPR group "${number} / 12")
      math(EXPR number "${number} + 1")
      set_source_files_properties(${file} PROPERTIES UNITY_GROUP ${folder}_${group})
    endforeach()
  endforeach()
  set_source_files_properties(${room_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON
                                             UNITY_BUILD ${GRADUS_UNITY_BUILD} UNITY_BUILD_MODE GROUP)
  set(options "${room_OPTIMISE}")
  if(room_OWN_OPTIONS OR (GRADUS_SANITIZE AND name IN_LIST gradus_fuzzed_rooms))
    set(options ${name})
  endif()
  get_property(owner GLOBAL PROPERTY "GRADUS_HEADERS_${options}")
  if(owner)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  else()
    target_precompile_headers(${target} PRIVATE ${gradus_standard_headers})
    set_property(GLOBAL PROPERTY "GRADUS_HEADERS_${options}" ${target})
  endif()
  target_compile_features(${target} PUBLIC cxx_std_20)
  if(room_OPTIMISE)
    target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:${room_OPTIMISE}>)
  endif()
  if(GRADUS_SANITIZE AND room_OPTIMISE STREQUAL "-O1" AND NOT name IN_LIST gradus_fuzzed_rooms)
    target_compile_options(${target} PRIVATE -O0)
  endif()
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} PUBLIC ${room_LINK})
  if(room_REGISTER)
    target_link_options(${target} INTERFACE LINKER:-u,gradus_${name}_is_registered)
  endif()
endfunction()

# Headers alone: with the target itself, every user of the library would have to find it, too.
function(gradus_use_json room)
  target_include_directories(gradus_${room}
                             PRIVATE $<TARGET_PROPERTY:nlohmann_json::nlohmann_json,INTERFACE_INCLUDE_DIRECTORIES>)
endfunction()
