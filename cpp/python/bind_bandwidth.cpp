// The read probe: what the speed of decoding is judged by.
#include "cpp/python/session.h"
#include "device/cpu/read_rate.h"

namespace muser::python {

void bind_bandwidth(py::module_& module) {
    using device::cpu::ReadProbe;
    py::class_<ReadProbe>(module, "ReadProbe")
        .def(py::init<uint64_t, int>(), py::arg("bytes"), py::arg("threads"),
             py::call_guard<py::gil_scoped_release>())
        .def("read_pass", &ReadProbe::pass, py::call_guard<py::gil_scoped_release>())
        .def_property_readonly("bytes", &ReadProbe::bytes)
        .def_property_readonly("threads", &ReadProbe::threads)
        .def_property_readonly("isa", &ReadProbe::isa)
        .def_property_readonly("kernel", &ReadProbe::kernel);
}

}  // namespace muser::python
