// The module muser._core: error mapping and the parts. Interface: python/muser/_core.pyi.
#include "cpp/python/session.h"

namespace muser::python {
namespace {

// Raises the exception that muser.errors makes of an error's kind, message and facts.
void raise(const Error& error) {
    py::list facts;
    for (const auto& [name, value] : error.facts()) facts.append(py::make_tuple(name, value));
    const py::object exception =
        py::module_::import("muser.errors").attr("from_core")(error.kind(), error.what(), facts);
    PyErr_SetObject(py::type::handle_of(exception).ptr(), exception.ptr());
}

}  // namespace
}  // namespace muser::python

PYBIND11_MODULE(_core, module) {
    namespace py = pybind11;
    module.doc() = "The compiled core: a few calls. Use muser.load.";
    module.attr("CONTRACT") = muser::kContract;
    py::register_exception_translator([](std::exception_ptr pointer) {
        try {
            if (pointer) std::rethrow_exception(pointer);
        } catch (const muser::Error& error) {
            // An interrupt during a step has set KeyboardInterrupt already; it comes first, and
            // what became of the engine is told as its cause.
            if (PyErr_Occurred() != nullptr) return;
            muser::python::raise(error);
        }
    });
    muser::python::bind_model(module);
    muser::python::bind_engine(module);
    muser::python::bind_kernels(module);  // after Engine, which it takes
    muser::python::bind_bandwidth(module);
    muser::python::bind_audit(module);
}
