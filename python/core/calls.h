/// What the calls of Layer, Decoder and Memory share: inputs by keyword, states as dictionaries,
/// work without the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "python/core/arrays.h"
#include "python/core/turn.h"
#include "ttr/call.h"
#include "ttr/inputs.h"
#include "ttr/layer.h"
#include "ttr/state.h"

namespace ttr::python {

/// The inputs of one call: q, k, v and all others by their names ("features.w" is features_w).
class GivenInputs {
 public:
  /// Errors: TypeError for a name that no input has; Error for what is no array.
  GivenInputs(std::string_view op, const Requirements& requirements, nb::handle q, nb::handle k,
              nb::handle v, const nb::kwargs& others);

  const Inputs& inputs() const { return inputs_; }
  /// The type of outputs: that of v, without it of q.
  DType output_dtype() const;
  /// NumPy's object for that type where it is bfloat16.
  nb::handle bfloat16() const { return bfloat16_; }

 private:
  void Take(std::string_view op, std::string_view name, TensorView Inputs::* field,
            nb::handle value);

  Inputs inputs_;
  nb::object bfloat16_;
  std::vector<Array> arrays_;
};

/// The switches among the keywords of a call (python/switches.h), which are taken out of these.
/// TypeError: one that is neither True nor False.
CallOptions TakeSwitches(std::string_view op, nb::kwargs& keywords);

/// A dictionary (or None) as a state of copies.
State CopyState(std::string_view op, const Layer& layer, nb::handle state);

/// A dictionary of arrays as a state of these very arrays.
class BoundState {
 public:
  /// `written`: by the call; then arrays are writable, and Return() puts what is new, or has grown,
  /// into the dictionary.
  BoundState(std::string_view op, const Layer& layer, nb::handle state, bool written);
  State& state() { return state_; }
  void Return();

 private:
  nb::object given_;
  State state_;
  std::vector<Array> arrays_;
};

/// The arrays of a state, which they share and keep.
nb::dict ShareState(State state);

/// The caller's arrays, or new ones, for the outputs of a call.
class OutputArrays {
 public:
  /// `out` is None, or a dictionary with any of "y" and the names of kReports.
  /// `with_status`: also where `out` has none.
  OutputArrays(std::string_view op, const Dims& dims, const GivenInputs& given, nb::handle out,
               bool with_status);
  const Outputs& outputs() const { return outputs_; }
  /// y, or (y, status).
  nb::object y() const { return y_; }
  nb::object status() const { return status_; }

 private:
  Outputs outputs_;
  nb::object y_, status_;
  std::vector<Array> arrays_;
};

/// Work without the GIL, one thread at a time on what has `turn`.
class Unlocked {
 public:
  Unlocked() = default;
  explicit Unlocked(Turn& turn) : lock_(turn) {}

 private:
  nb::gil_scoped_release released_;  // first: a thread that waits for its turn holds no GIL
  std::unique_lock<Turn> lock_;      // given back before the GIL is taken again
};

/// What Python's threads share, and who may use it now. A copy waits for its turn.
template <class T>
class Shared {
 public:
  explicit Shared(T value) : value_(std::move(value)) {}
  Shared(const Shared& other) : value_(other.Copy()) {}

  T& value() { return value_; }
  const T& value() const { return value_; }
  Turn& turn() const { return turn_; }

 private:
  T Copy() const {
    const Unlocked unlocked(turn_);
    return value_;
  }

  mutable Turn turn_;
  T value_;
};

}  // namespace ttr::python
