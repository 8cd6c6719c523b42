# Python and pybind11 for the module muser._core. scikit-build-core points find_package at the
# interpreter and the pybind11 that it builds for; a plain CMake build asks the interpreter.
if(NOT MUSER_PYTHON)
    return()
endif()

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
if(NOT pybind11_DIR)
    execute_process(
        COMMAND ${Python_EXECUTABLE} -m pybind11 --cmakedir
        OUTPUT_VARIABLE pybind11_hint OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    list(APPEND CMAKE_PREFIX_PATH ${pybind11_hint})
endif()
set(PYBIND11_FINDPYTHON ON)
find_package(pybind11 CONFIG QUIET)
if(NOT pybind11_FOUND)
    message(FATAL_ERROR "pybind11 was not found for ${Python_EXECUTABLE}: pip install pybind11")
endif()
