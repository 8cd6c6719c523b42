# What a plain `cmake -B build` gets: an optimised build, through ccache where it is installed.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(MUSER_CCACHE ccache)
if(MUSER_CCACHE)
    foreach(language CXX OBJCXX)
        if(NOT CMAKE_${language}_COMPILER_LAUNCHER)
            set(CMAKE_${language}_COMPILER_LAUNCHER ${MUSER_CCACHE})
        endif()
    endforeach()
endif()
