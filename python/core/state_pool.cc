// class StatePool: the memories of many streams, taken by index.
#include "ttr/state_pool.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "python/core/calls.h"
#include "python/core/executors.h"
#include "python/core/module.h"
#include "ttr/error.h"

namespace ttr::python {
namespace {

#define TTR_STATE "dict[str, numpy.typing.NDArray[typing.Any]]"
#define TTR_GIVEN "collections.abc.Mapping[str, object] | None"
#define TTR_ARRAY "numpy.typing.NDArray[typing.Any]"

/// A pool, the layer that it needs, and who may use each slot now.
class SharedPool {
 public:
  SharedPool(std::shared_ptr<const Layer> layer, const Dims& dims, std::int64_t slots,
             const DecoderOptions& options)
      : layer_(std::move(layer)),
        pool_(*layer_, dims, slots, options),
        turns_(std::make_unique<Turn[]>(static_cast<std::size_t>(slots))) {}

  const Layer& layer() const { return *layer_; }
  StatePool& pool() { return pool_; }
  Turn& turn(std::int64_t slot) { return turns_[static_cast<std::size_t>(slot)]; }

 private:
  std::shared_ptr<const Layer> layer_;
  StatePool pool_;
  std::unique_ptr<Turn[]> turns_;
};

/// Work without the GIL, while no other thread uses these slots.
class UnlockedSlots {
 public:
  UnlockedSlots(SharedPool& pool, std::vector<std::int64_t> slots) {
    // In one order, so that no two threads wait for each other; the pool refuses wrong numbers.
    std::ranges::sort(slots);
    std::int64_t last = -1;
    for (const std::int64_t slot : slots) {
      if (slot <= last || slot >= pool.pool().slots()) continue;
      locks_.emplace_back(pool.turn(slot));
      last = slot;
    }
  }

 private:
  nb::gil_scoped_release released_;
  std::vector<std::unique_lock<Turn>> locks_;
};

void Construct(SharedPool* self, nb::handle layer, std::int64_t slots, const nb::kwargs& others) {
  auto planned = LayerFrom(layer);
  const auto [sizes, options] = DecoderKeywordsFrom("StatePool", others, 1);
  const Dims dims = DimsFrom(planned->recipe(), sizes);
  new (self) SharedPool(std::move(planned), dims, slots, options);
}

/// Numbers of slots: any integers in a row.
std::vector<std::int64_t> SlotsFrom(nb::handle slots) {
  std::vector<std::int64_t> numbers;
  try {
    for (const nb::handle slot : nb::iter(slots)) {
      numbers.push_back(
          nb::cast<std::int64_t>(nb::module_::import_("operator").attr("index")(slot)));
    }
  } catch (const nb::python_error&) {
    throw Error("step", "slots", "integers, one for each sequence", nb::repr(slots).c_str());
  }
  return numbers;
}

nb::object Step(SharedPool& self, nb::handle slots, nb::handle q, nb::handle k, nb::handle v,
                nb::handle threads, nb::handle out, const nb::kwargs& others) {
  const std::string_view op = "step";
  const std::vector<std::int64_t> taken = SlotsFrom(slots);
  const Requirements& requirements = self.layer().requirements();
  const GivenInputs given(op, requirements, q, k, v, others);
  const Dims dims = InferDims(op, requirements, given.inputs());
  const OutputArrays arrays(op, dims, given, out, false);
  Executor& executor = ExecutorFor(threads);
  const UnlockedSlots unlocked(self, taken);
  self.pool().Step(taken, given.inputs(), arrays.outputs(), {.executor = &executor});
  return arrays.y();
}

nb::object StateOf(SharedPool& self, std::int64_t slot) {
  Executor& executor = ExecutorFor(nb::none());
  State copy;
  {
    const UnlockedSlots unlocked(self, {slot});
    Decoder decoder = self.pool().At(slot);
    for (const State::Entry& entry : decoder.state({.executor = &executor}).entries()) {
      copy.Set(entry.name, Tensor::Copy(entry.view));
    }
  }
  return ShareState(std::move(copy));
}

void Start(SharedPool& self, std::int64_t slot, nb::handle given) {
  const State state = CopyState("start", self.layer(), given);
  const UnlockedSlots unlocked(self, {slot});
  self.pool().At(slot).Start(state);
}

nb::bytes Dump(SharedPool& self, std::int64_t slot) {
  std::string bytes(self.pool().slot_bytes(), '\0');
  {
    const UnlockedSlots unlocked(self, {slot});
    self.pool().At(slot);  // or it says which slots there are
    std::memcpy(bytes.data(),
                self.pool().memory().data() + static_cast<std::size_t>(slot) * bytes.size(),
                bytes.size());
  }
  return nb::bytes(bytes.data(), bytes.size());
}

void Load(SharedPool& self, std::int64_t slot, const nb::bytes& bytes) {
  const std::size_t size = self.pool().slot_bytes();
  if (bytes.size() != size) {
    throw Error("load", "data", std::to_string(size) + " bytes of a slot",
                std::to_string(bytes.size()));
  }
  const char* const data = bytes.c_str();
  const UnlockedSlots unlocked(self, {slot});
  self.pool().At(slot);
  std::byte* const at = self.pool().memory().data() + static_cast<std::size_t>(slot) * size;
  std::vector<std::byte> before(at, at + size);
  std::memcpy(at, data, size);
  try {
    self.pool().At(slot);  // is it a slot of such a pool?
  } catch (const Error&) {
    std::ranges::copy(before, at);
    throw;
  }
}

void BindSlots(nb::class_<SharedPool>& bound) {
  using P = SharedPool;
  bound
      .def(
          "pending",
          [](P& self, std::int64_t slot) {
            const UnlockedSlots unlocked(self, {slot});
            return self.pool().At(slot).pending();
          },
          nb::arg("slot"), "Tokens of a slot that roll_back can take back now.")
      .def(
          "roll_back",
          [](P& self, std::int64_t slot, std::int64_t tokens) {
            const UnlockedSlots unlocked(self, {slot});
            self.pool().At(slot).RollBack(tokens);
          },
          nb::arg("slot"), nb::arg("tokens"),
          "Forgets the last tokens of a slot, as if they had never been.")
      .def(
          "copy",
          [](P& self, std::int64_t from, std::int64_t to) {
            const UnlockedSlots unlocked(self, {from, to});
            self.pool().Copy(from, to);
          },
          nb::arg("source"), nb::arg("target"), "Copies a slot: the stream goes on in both.")
      .def(
          "free",
          [](P& self, std::int64_t slot) {
            const UnlockedSlots unlocked(self, {slot});
            self.pool().Free(slot);
          },
          nb::arg("slot"), "Forgets all of a slot.")
      .def("dump", &Dump, nb::arg("slot"),
           "All of a slot as bytes, which `load` of a pool of the same layer, sizes and machine "
           "takes.")
      .def("load", &Load, nb::arg("slot"), nb::arg("data"), "Puts back what `dump` gave.")
      .def_prop_ro("slots", [](P& self) { return self.pool().slots(); })
      .def_prop_ro("slot_bytes", [](P& self) { return self.pool().slot_bytes(); })
      .def_prop_ro("recipe", [](const P& self) { return self.layer().recipe(); })
      .def("__repr__", [](P& self) {
        return "StatePool(" +
               std::string(nb::repr(nb::cast(ToString(self.layer().recipe()))).c_str()) +
               ", slots=" + std::to_string(self.pool().slots()) + ")";
      });
}

}  // namespace

void BindStatePool(nb::module_& module) {
  using P = SharedPool;
  const auto none = nb::none();
  nb::class_<P> bound(module, "StatePool",
                      R"(The memories of many streams, of which a call takes some.

    pool = StatePool("gated_deltanet", slots=1024, heads=4, key_dim=64, value_dim=64)
    y = pool.step([17, 3, 900], q, k, v, log_decay=g, step=beta)   # [3, 1, H, D]: a token each
    y = pool.step([17, 3], q, k, v, ..., cu_seqlens=[0, 80, 200])  # prompts, packed
    pool.copy(17, 18)                                              # the stream goes on in both
    pool.free(17)                                                  # the recipe's start again

A slot is what a Decoder of one stream keeps, with a number of pending tokens of its own; answers are,
bit for bit, those of that Decoder. A slot of -1 is none: its row is not looked at, its answers are 0.
Threads may step disjoint slots at the same time; on a slot they take turns.)");
  bound
      .def(
          "__init__", &Construct, nb::arg("layer"), nb::kw_only(), nb::arg("slots"),
          nb::arg("others"),
          nb::sig("def __init__(self, layer: Layer | str | dict[str, typing.Any] | Recipe, *, "
                  "slots: int, " TTR_DECODER_KEYWORDS),
          R"(The other arguments are those of Decoder. ValueError: out of range; a recipe that keeps its
pairs, whose memory grows, or with `draft` one whose writes cannot wait.)")
      .def(
          "step", &Step, nb::arg("slots"), nb::arg("q") = none, nb::arg("k") = none,
          nb::arg("v") = none, nb::kw_only(), nb::arg("threads") = none, nb::arg("out") = none,
          nb::arg("inputs"),
          nb::sig("def step(self, slots: collections.abc.Iterable[int], q: object = None, "
                  "k: object = None, v: object = None, *, threads: int | None = None, "
                  "out: " TTR_GIVEN " = None, **inputs: object) -> " TTR_ARRAY),
          R"(Memorizes the tokens of each row of the batch (of each packed sequence, with cu_seqlens) in
its slot, and answers each. ValueError, and nothing is written: slots out of range or equal, and what
Layer.forward refuses.)")
      .def("start", &Start, nb::arg("slot"), nb::arg("state") = none,
           nb::sig("def start(self, slot: int, state: " TTR_GIVEN " = None) -> None"),
           "The slot goes on from a copy of `state`; None or {}: from the recipe's start.")
      .def("state", &StateOf, nb::arg("slot"), nb::sig("def state(self, slot: int) -> " TTR_STATE),
           "The state after the slot's last token, as new arrays; empty before the first. Nothing "
           "is "
           "pending then.");
  BindSlots(bound);
}

}  // namespace ttr::python
