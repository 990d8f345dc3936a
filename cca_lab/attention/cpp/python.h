// The ops of a decoded token as Python functions. Torch's dispatcher packs each argument, and each item of a list, in a
// value of its own, which takes longer than a small model's token needs here.
#pragma once

#if __has_include(<Python.h>) && !defined(WITHOUT_PYTHON)
#include <torch/csrc/autograd/python_variable.h>

#include <optional>
#include <tuple>
#include <vector>

#include "pool.h"
#include "row.h"
#include "step.h"

namespace cca_lab {

inline void read(PyObject* object, at::Tensor& value) {
  TORCH_CHECK_TYPE(THPVariable_Check(object), "got ", Py_TYPE(object)->tp_name, ", wanted a tensor");
  value = THPVariable_Unpack(object);
}
inline void read(PyObject* object, double& value) { value = PyFloat_AsDouble(object); }
inline void read(PyObject* object, int64_t& value) { value = PyLong_AsLongLong(object); }
inline void read(PyObject* object, std::optional<at::Tensor>& value) {
  if (object != Py_None) read(object, value.emplace());
}
template <class T>
void read(PyObject* object, std::vector<T>& value) {
  TORCH_CHECK_TYPE(PyList_Check(object) || PyTuple_Check(object), "got ", Py_TYPE(object)->tp_name, ", wanted a list");
  value.resize(PySequence_Fast_GET_SIZE(object));
  for (size_t i = 0; i < value.size(); ++i) read(PySequence_Fast_GET_ITEM(object, i), value[i]);
}

inline PyObject* to_python(const at::Tensor& x) { return THPVariable_Wrap(x); }
inline PyObject* to_python(const Tensors& all) {
  PyObject* list = PyList_New(all.size());
  for (size_t i = 0; i < all.size(); ++i) PyList_SET_ITEM(list, i, to_python(all[i]));
  return list;
}
template <class A, class B>
PyObject* to_python(const std::tuple<A, B>& pair) {
  return Py_BuildValue("(NN)", to_python(std::get<0>(pair)), to_python(std::get<1>(pair)));
}

// The type in which an argument is kept while a function runs.
template <class A>
struct Kept {
  using type = std::decay_t<A>;
};
template <class T>
struct Kept<c10::ArrayRef<T>> {
  using type = std::vector<T>;
};

template <auto F>
struct Function;
template <class R, class... A, R (*F)(A...)>
struct Function<F> {
  static PyObject* call(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    HANDLE_TH_ERRORS
    TORCH_CHECK_TYPE(count == sizeof...(A), "got ", count, " arguments, wanted ", sizeof...(A));
    std::tuple<typename Kept<A>::type...> kept;
    std::apply([&](auto&... value) { (read(*arguments++, value), ...); }, kept);
    if (PyErr_Occurred()) throw python_error();
    return to_python(without_lock([&] { return std::apply(F, kept); }));
    END_HANDLE_TH_ERRORS
  }
  template <class Work>
  static R without_lock(const Work& work) {
    const pybind11::gil_scoped_release released;
    return work();
  }
  static PyMethodDef named(const char* name) {
    return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&call)), METH_FASTCALL, nullptr};
  }
};

inline PyObject* python_module() {
  static PyMethodDef functions[] = {Function<&row>::named("row"), Function<&step>::named("step"),
                                    Function<&pool>::named("pool"), Function<&slide>::named("slide"), {}};
  static PyModuleDef module = {PyModuleDef_HEAD_INIT, "cca_lab_native", nullptr, -1, functions};
  return PyModule_Create(&module);
}

// The address of `python_module`: the functions are those of the very library whose ops are registered.
inline int64_t python_functions() { return reinterpret_cast<int64_t>(&python_module); }

}  // namespace cca_lab
#else
namespace cca_lab {
inline int64_t python_functions() { return 0; }
}  // namespace cca_lab
#endif
