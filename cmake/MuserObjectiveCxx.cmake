# The Objective-C++ language and the target `muser_objc`: link it from every .mm target.
#
# Off Apple the language comes from gcc (its own front end, headers and run-time library) or from
# clang, which brings the front end but borrows headers and library from a gcc installation.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    string(REGEX MATCH "^[0-9]+" compiler_major "${CMAKE_CXX_COMPILER_VERSION}")
    set(objc_hint "Debian and Ubuntu: apt install gobjc++ (or gobjc++-${compiler_major})")
else()
    set(objc_hint "Debian and Ubuntu: apt install clang libobjc-12-dev (or the libobjc-N-dev of the installed gcc N)")
endif()

# One compiler for both languages: mixing two would mix two ABIs' idea of a few corner cases.
if(NOT CMAKE_OBJCXX_COMPILER)
    set(CMAKE_OBJCXX_COMPILER ${CMAKE_CXX_COMPILER} CACHE FILEPATH "Objective-C++ compiler")
endif()
set(objcxx_probe ${PROJECT_BINARY_DIR}/CMakeFiles/muser_objcxx_probe.mm)
file(WRITE ${objcxx_probe} "@class Probe;\nint probe(Probe* p) { return p != 0; }\n")
execute_process(
    COMMAND ${CMAKE_OBJCXX_COMPILER} -fsyntax-only ${objcxx_probe}
    RESULT_VARIABLE objcxx_missing
    OUTPUT_QUIET ERROR_QUIET)
if(objcxx_missing)
    message(FATAL_ERROR "${CMAKE_OBJCXX_COMPILER} cannot compile Objective-C++. ${objc_hint}")
endif()
enable_language(OBJCXX)

add_library(muser_objc INTERFACE)
if(APPLE)
    target_compile_options(muser_objc INTERFACE $<$<COMPILE_LANGUAGE:OBJCXX>:-fno-objc-arc>)
    # Without CoreGraphics in the process macOS has no default Metal device for command-line programs.
    target_link_libraries(muser_objc INTERFACE objc
        "-framework Foundation" "-framework Metal" "-framework CoreGraphics")
else()
    # Asks the compiler first; then every gcc on the machine, newest first.
    execute_process(
        COMMAND ${CMAKE_OBJCXX_COMPILER} -print-file-name=include/objc/objc.h
        OUTPUT_VARIABLE objc_header OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT IS_ABSOLUTE "${objc_header}" OR NOT EXISTS "${objc_header}")
        set(machine ${CMAKE_SYSTEM_PROCESSOR})
        file(GLOB objc_headers
             /usr/lib/gcc/${machine}-*/*/include/objc/objc.h
             /usr/lib64/gcc/${machine}-*/*/include/objc/objc.h)
        list(SORT objc_headers COMPARE NATURAL ORDER DESCENDING)
        set(objc_header "")
        if(objc_headers)
            list(GET objc_headers 0 objc_header)
        endif()
    endif()
    if(NOT objc_header)
        message(FATAL_ERROR "objc/objc.h was not found for ${CMAKE_OBJCXX_COMPILER}. ${objc_hint}")
    endif()
    cmake_path(GET objc_header PARENT_PATH objc_include)
    cmake_path(GET objc_include PARENT_PATH objc_include)
    cmake_path(GET objc_include PARENT_PATH objc_gcc_folder)

    find_library(MUSER_LIBOBJC objc HINTS ${objc_gcc_folder})
    if(NOT MUSER_LIBOBJC)
        message(FATAL_ERROR "libobjc was not found (searched ${objc_gcc_folder}). ${objc_hint}")
    endif()
    # After clang's own folder: the borrowed one also holds gcc's intrinsics.
    target_compile_options(muser_objc INTERFACE
        "$<$<COMPILE_LANGUAGE:OBJCXX>:SHELL:-idirafter ${objc_include}>"
        "$<$<COMPILE_LANG_AND_ID:OBJCXX,Clang>:SHELL:-fobjc-runtime=gcc -include ${CMAKE_CURRENT_LIST_DIR}/clang_objcxx.h>")
    target_link_libraries(muser_objc INTERFACE ${MUSER_LIBOBJC})
    message(STATUS "Objective-C++: ${CMAKE_OBJCXX_COMPILER}, ${objc_include}/objc, ${MUSER_LIBOBJC}")
endif()
