// class Memory: pairs in, values out, and files.
#include "ttr/memory.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "python/core/calls.h"
#include "python/core/copies.h"
#include "python/core/module.h"
#include "python/names.h"
#include "ttr/error.h"
#include "ttr/util/safetensors.h"

namespace ttr::python {
namespace {

#define TTR_STATE "dict[str, numpy.typing.NDArray[typing.Any]]"
#define TTR_ARRAY "numpy.typing.NDArray[numpy.float64]"

using Texts = std::map<std::string, std::string>;

struct SharedMemory : Shared<AssociativeMemory> {
  explicit SharedMemory(AssociativeMemory memory, Texts texts = {})
      : Shared(std::move(memory)), extra(std::move(texts)) {}

  Texts extra;  ///< what travels with it
};

/// Plain numbers of an argument, in double precision: shared where they are that already.
class Numbers {
 public:
  Numbers(std::string_view op, std::string_view name, nb::handle value) {
    if (PyFloat_CheckExact(value.ptr())) {
      number_ = PyFloat_AsDouble(value.ptr());
      single_ = true;
      return;
    }
    if (value.is_none()) return;
    array_ = ReadArray(op, name, value, true);
    rank_ = array_.view.rank();
    if (array_.view.dtype() != DType::kFloat64 || !array_.view.contiguous()) {
      array_.copy = Tensor::Copy(array_.view, DType::kFloat64);
      array_.view = array_.copy.view();
    }
  }

  std::span<const double> span() const {
    if (single_) return {&number_, 1};
    if (!array_.view.defined()) return {};
    return {array_.view.as<const double>(),
            static_cast<std::size_t>(array_.view.shape().elements())};
  }
  int rank() const { return rank_; }

 private:
  double number_ = 0;
  bool single_ = false;
  int rank_ = 0;
  Array array_;
};

/// The gates of a token: names as the library has them, and their numbers.
class GivenGates {
 public:
  GivenGates(std::string_view op, const nb::kwargs& given) {
    numbers_.reserve(given.size());
    for (const auto& [key, value] : given) {
      const auto name = nb::cast<std::string>(key);
      numbers_.emplace_back(op, name, value);
      gates_[LibraryName(name)] = numbers_.back().span();
    }
  }
  const Gates& gates() const { return gates_; }

  /// features_w is features.w; a name that no input has stays, for the library to refuse.
  static std::string LibraryName(const std::string& keyword) {
    for (const InputField& field : InputFields()) {
      if (Keyword(field.name) == keyword) return std::string(field.name);
    }
    return keyword;
  }

 private:
  std::vector<Numbers> numbers_;  // never grows beyond what is reserved: spans stay
  Gates gates_;
};

void Memorize(SharedMemory& self, nb::handle key, nb::handle value, const nb::kwargs& given) {
  const Numbers keys("memorize", "key", key);
  const Numbers values("memorize", "value", value);
  const GivenGates gates("memorize", given);
  const Unlocked unlocked(self.turn());
  self.value().Memorize(keys.span(), values.span(), gates.gates());
}

nb::object Retrieve(const SharedMemory& self, nb::handle query, bool return_status) {
  const Numbers numbers("retrieve", "query", query);
  const AssociativeMemory::Sizes& sizes = self.value().sizes();
  const bool flat = sizes.heads == 1 && numbers.rank() < 2;
  const nb::object answer = NewArray(
      DType::kFloat64, flat ? Shape{sizes.value_dim} : Shape{sizes.heads, sizes.value_dim});
  const Array room = WriteArray("retrieve", "value", answer);
  Status status;
  {
    const Unlocked unlocked(self.turn());
    status = self.value().Retrieve(
        numbers.span(),
        {room.view.as<double>(), static_cast<std::size_t>(room.view.shape().elements())});
  }
  if (!return_status) return answer;
  return nb::make_tuple(answer, static_cast<int>(status));
}

double Loss(const SharedMemory& self, nb::handle key, nb::handle value) {
  const Numbers keys("loss", "key", key);
  const Numbers values("loss", "value", value);
  const Unlocked unlocked(self.turn());
  return self.value().Loss(keys.span(), values.span());
}

nb::dict StateOf(const SharedMemory& self) {
  State copy;
  {
    const Unlocked unlocked(self.turn());
    for (const State::Entry& entry : self.value().state().entries()) {
      copy.Set(entry.name, Tensor::Copy(entry.view));
    }
  }
  return ShareState(std::move(copy));
}

nb::tuple GetState(const SharedMemory& self) {
  TensorFile file;
  const Texts extra = self.extra;  // while no other thread can give another
  {
    const Unlocked unlocked(self.turn());
    file = self.value().ToTensors(extra);
  }
  nb::dict tensors;
  for (const auto& [name, tensor] : file.tensors) tensors[name.c_str()] = CopyArray(tensor.view());
  return nb::make_tuple(file.metadata, tensors);
}

void SetState(SharedMemory& self, const nb::tuple& saved) {
  TensorFile file;
  file.metadata = nb::cast<Texts>(saved[0]);
  for (const auto& [name, value] : nb::borrow<nb::dict>(saved[1])) {
    file.tensors.emplace(nb::cast<std::string>(name),
                         Tensor::Copy(ReadArray("Memory", "state", value).view));
  }
  Texts extra;
  auto memory = AssociativeMemory::FromTensors(std::move(file), "a pickle", &extra);
  new (&self) SharedMemory(std::move(memory), std::move(extra));
}

SharedMemory* Load(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) {  // as Python's own functions have it
    errno = ENOENT;
    PyErr_SetFromErrnoWithFilename(PyExc_OSError, path.c_str());
    throw nb::python_error();
  }
  Texts extra;
  AssociativeMemory memory = [&] {
    const Unlocked unlocked;
    return AssociativeMemory::Load(path, &extra);
  }();
  return new SharedMemory(std::move(memory), std::move(extra));
}

void BindCalls(nb::class_<SharedMemory>& bound) {
  using M = SharedMemory;
  bound
      .def(
          "memorize", &Memorize, nb::arg("key").none(), nb::arg("value"), nb::arg("gates"),
          nb::sig("def memorize(self, key: object, value: object, **gates: object) -> None"),
          R"(Writes one pair: key [H, Dk], value [H, Dv]; [n, H, D] where a token takes n steps. Gates take
the place of those of set_gate for this pair. ValueError, and nothing written: sizes, a gate that the
recipe does not take, one that it requires and that was not given.)")
      .def(
          "retrieve", &Retrieve, nb::arg("query") = nb::none(), nb::kw_only(),
          nb::arg("return_status") = false,
          nb::sig("def retrieve(self, query: object = None, *, return_status: bool = False) "
                  "-> " TTR_ARRAY),
          R"(Reads m(query); changes nothing. return_status: also the worst status of all heads (0 solved,
1 the smallest norm, 2 not converged, 3 nothing to solve).)")
      .def("loss", &Loss, nb::arg("key").none(), nb::arg("value"),
           nb::sig("def loss(self, key: object, value: object) -> float"),
           "1/2 |v - m(k)|^2 of the memory as it is, summed over heads.")
      .def(
          "condition",
          [](const M& self) {
            const Unlocked unlocked(self.turn());
            return self.value().Condition();
          },
          R"(How well the regression is determined: the ratio of the extreme eigenvalues of the scaled Gram
matrix, the worst of all heads; inf where singular, 1 for recipes without one. O(H Dk^3).)")
      .def(
          "set_gate",
          [](M& self, const std::string& name, nb::handle values) {
            const Numbers numbers("set_gate", name, values);
            const Unlocked unlocked(self.turn());
            self.value().SetGate(GivenGates::LibraryName(name), numbers.span());
          },
          nb::arg("name"), nb::arg("values"),
          nb::sig("def set_gate(self, name: str, values: object) -> None"),
          "Sets a gate, or a constant of the recipe, for all later pairs.");
}

void BindFiles(nb::class_<SharedMemory>& bound) {
  using M = SharedMemory;
  bound
      .def(
          "save",
          [](const M& self, const std::filesystem::path& path) {
            const Texts extra = self.extra;  // while no other thread can give another
            const Unlocked unlocked(self.turn());
            self.value().Save(path, extra);
          },
          nb::arg("path"), nb::sig("def save(self, path: str | os.PathLike[str]) -> None"),
          "One safetensors file, atomically. OSError where the system refuses.")
      .def_static("load", &Load, nb::arg("path"), nb::rv_policy::take_ownership,
                  nb::sig("def load(path: str | os.PathLike[str]) -> Memory"),
                  "What save wrote, also by the command ttr. ValueError: a damaged file.");
}

void BindFacts(nb::class_<SharedMemory>& bound) {
  using M = SharedMemory;
  bound.def_prop_ro("recipe", [](const M& self) { return self.value().recipe(); })
      .def_prop_ro(
          "count", [](const M& self) { return self.value().count(); },
          "Pairs memorized so far, over all sessions.")
      .def_prop_ro("key_dim", [](const M& self) { return self.value().sizes().key_dim; })
      .def_prop_ro("value_dim", [](const M& self) { return self.value().sizes().value_dim; })
      .def_prop_ro("heads", [](const M& self) { return self.value().sizes().heads; })
      .def_prop_ro("state", &StateOf, nb::sig("def state(self) -> " TTR_STATE),
                   "The state after the last pair, as new arrays; empty before the first.")
      .def_prop_rw(
          "extra", [](const M& self) { return self.extra; },
          [](M& self, Texts extra) { self.extra = std::move(extra); },
          nb::for_getter(nb::sig("def extra(self) -> dict[str, str]")),
          nb::for_setter(nb::sig("def extra(self, extra: dict[str, str], /) -> None")),
          "Texts that travel along in files and pickles; a copy is given and taken.")
      .def("__repr__",
           [](const M& self) {
             const auto& sizes = self.value().sizes();
             return "Memory(" +
                    std::string(nb::repr(nb::cast(ToString(self.value().recipe()))).c_str()) +
                    ", key_dim=" + std::to_string(sizes.key_dim) +
                    ", value_dim=" + std::to_string(sizes.value_dim) +
                    ", heads=" + std::to_string(sizes.heads) + ")";
           })
      .def("__getstate__", &GetState, nb::sig("def __getstate__(self) -> tuple[typing.Any, ...]"))
      .def("__setstate__", &SetState, nb::arg("saved"),
           nb::sig("def __setstate__(self, saved: tuple[typing.Any, ...], /) -> None"));
}

}  // namespace

void BindMemory(nb::module_& module) {
  using M = SharedMemory;
  nb::class_<M> bound(module, "Memory", R"(An associative memory: the streaming face of a layer.

    memory = Memory("weighted_rls{decay: 0.99}", key_dim=16, value_dim=1)
    memory.memorize(key, value)
    answer = memory.retrieve(query)
    memory.save("filter.safetensors")

For every causal recipe; memories that keep their pairs (softmax, kernel regression) grow. Keys are
[Dk], or [heads, Dk]; values and answers alike, in float64. Gates are given with a pair or set once:
set_gate("log_decay", -0.01). Pickle, deepcopy, save and load go on bit for bit. Threads take turns.)");
  BindCopies(bound, "Memory");
  bound.def(
      "__init__",
      [](M* self, nb::handle recipe, std::int64_t key_dim, std::int64_t value_dim,
         std::int64_t heads) {
        new (self) M(AssociativeMemory(
            RecipeFrom(recipe), {.key_dim = key_dim, .value_dim = value_dim, .heads = heads}));
      },
      nb::arg("recipe"), nb::kw_only(), nb::arg("key_dim") = 1, nb::arg("value_dim") = 1,
      nb::arg("heads") = 1,
      nb::sig("def __init__(self, recipe: str | dict[str, typing.Any] | Recipe, *, "
              "key_dim: int = 1, value_dim: int = 1, heads: int = 1) -> None"));
  BindCalls(bound);
  BindFiles(bound);
  BindFacts(bound);
}

}  // namespace ttr::python
