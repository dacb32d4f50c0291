#include "python/core/calls.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "python/names.h"
#include "python/switches.h"
#include "ttr/error.h"

namespace ttr::python {
namespace {

/// The inputs that a recipe takes, as a person writes them.
nb::list KeywordsOf(const Requirements& requirements) {
  nb::list names;
  for (const InputSpec& spec : requirements.inputs) {
    const std::string keyword = Keyword(spec.name);
    names.append(nb::str(keyword.c_str()));
  }
  return names;
}

[[noreturn]] void FailName(std::string_view op, const Requirements& requirements,
                           std::string_view name) {
  const nb::list known = KeywordsOf(requirements);
  std::string text = "[" + std::string(op) + "] there is no input '" + std::string(name) +
                     "'; this recipe takes " +
                     nb::cast<std::string>(nb::str(", ").attr("join")(known));
  const nb::object likely =
      nb::module_::import_("ttr._names").attr("likely")(nb::str(name.data(), name.size()), known);
  if (nb::len(likely) > 0)
    text += " (did you mean '" + std::string(nb::str(likely).c_str()) + "'?)";
  throw nb::type_error(text.c_str());
}

/// Is this the name of an input, or its keyword?
bool IsCalled(std::string_view name, std::string_view given) {
  return name.size() == given.size() &&
         std::equal(name.begin(), name.end(), given.begin(),
                    [](char a, char b) { return a == b || (a == '.' && b == '_'); });
}

const InputField* FindField(std::string_view given) {
  for (const InputField& field : InputFields()) {
    if (IsCalled(field.name, given)) return &field;
  }
  return nullptr;
}

/// Is this entry of the state a whole number, of whatever width?
bool IsCount(const Layer& layer, std::string_view name) {
  return std::ranges::any_of(layer.requirements().state, [&](const StateSpec& spec) {
    return spec.counts() && spec.name == name;
  });
}

/// Every name and array of a state that is a dictionary or None.
template <class Use>
void ForEachEntry(std::string_view op, nb::handle state, const Use& use) {
  if (state.is_none()) return;
  if (!nb::isinstance<nb::dict>(state)) {
    throw Error(op, "state", "a dictionary of arrays, or None",
                "a " + std::string(nb::str(state.type().attr("__name__")).c_str()));
  }
  for (const auto& [key, value] : nb::borrow<nb::dict>(state)) {
    if (!nb::isinstance<nb::str>(key)) {
      throw Error(op, "a name in state", "text", nb::repr(key).c_str());
    }
    if (!value.is_none()) use(std::string(nb::str(key).c_str()), value);
  }
}

}  // namespace

CallOptions TakeSwitches(std::string_view op, nb::kwargs& keywords) {
  CallOptions options;
  for (const CallSwitch& known : kCallSwitches) {
    const nb::str name(known.name.data(), known.name.size());
    if (!keywords.contains(name)) continue;
    const nb::object value = keywords[name];
    if (!nb::isinstance<nb::bool_>(value)) {
      throw nb::type_error(("[" + std::string(op) + "] " + std::string(known.name) +
                            " must be True or False but is " + nb::repr(value).c_str())
                               .c_str());
    }
    options.*known.value = nb::cast<bool>(value);
    nb::del(keywords[name]);
  }
  return options;
}

GivenInputs::GivenInputs(std::string_view op, const Requirements& requirements, nb::handle q,
                         nb::handle k, nb::handle v, const nb::kwargs& others) {
  arrays_.reserve(3 + others.size());
  Take(op, "q", &Inputs::q, q);
  Take(op, "k", &Inputs::k, k);
  Take(op, "v", &Inputs::v, v);
  for (const auto& [key, value] : others) {
    const auto name = nb::cast<std::string_view>(key);
    const InputField* field = FindField(name);
    if (field == nullptr) FailName(op, requirements, name);
    Take(op, name, field->view, value);
  }
}

void GivenInputs::Take(std::string_view op, std::string_view name, TensorView Inputs::* field,
                       nb::handle value) {
  if (!value.is_valid() || value.is_none()) return;
  Array array = ReadArray(op, name, value, field == &Inputs::cu_seqlens);
  inputs_.*field = array.view;
  if (array.dtype.is_valid() && (field == &Inputs::v || !bfloat16_.is_valid())) {
    bfloat16_ = array.dtype;
  }
  arrays_.push_back(std::move(array));
}

DType GivenInputs::output_dtype() const {
  if (inputs_.v.defined()) return inputs_.v.dtype();
  return inputs_.q.defined() ? inputs_.q.dtype() : DType::kFloat32;
}

State CopyState(std::string_view op, const Layer& layer, nb::handle state) {
  State copy;
  ForEachEntry(op, state, [&](const std::string& name, nb::handle value) {
    copy.Set(name, Tensor::Copy(ReadArray(op, name, value, IsCount(layer, name)).view));
  });
  return copy;
}

BoundState::BoundState(std::string_view op, const Layer& layer, nb::handle state, bool written)
    : given_(nb::borrow(state)) {
  ForEachEntry(op, state, [&](const std::string& name, nb::handle value) {
    Array array =
        written ? WriteArray(op, name, value) : ReadArray(op, name, value, IsCount(layer, name));
    state_.Bind(name, array.view);
    arrays_.push_back(std::move(array));
  });
}

void BoundState::Return() {
  nb::dict result = nb::borrow<nb::dict>(given_);
  for (const State::Entry& entry : state_.entries()) {
    if (entry.owned.defined()) result[entry.name.c_str()] = CopyArray(entry.view);
  }
}

nb::dict ShareState(State state) {
  auto shared = std::make_unique<State>(std::move(state));
  const State& entries = *shared;
  const nb::capsule owner(shared.release(),
                          [](void* memory) noexcept { delete static_cast<State*>(memory); });
  nb::dict arrays;
  for (const State::Entry& entry : entries.entries()) {
    arrays[entry.name.c_str()] = ShareArray(entry.view, owner);
  }
  return arrays;
}

OutputArrays::OutputArrays(std::string_view op, const Dims& dims, const GivenInputs& given,
                           nb::handle out, bool with_status) {
  if (!out.is_none() && !nb::isinstance<nb::dict>(out)) {
    throw Error(op, "out", "a dictionary of arrays, or None",
                "a " + std::string(nb::str(out.type().attr("__name__")).c_str()));
  }
  const auto room = [&](nb::handle array, const char* name) {
    arrays_.push_back(WriteArray(op, name, array));
    return arrays_.back().view;
  };
  if (!out.is_none()) {
    for (const auto& [key, value] : nb::borrow<nb::dict>(out)) {
      const std::string name = nb::str(key).c_str();
      if (name == "y") {
        outputs_.y = room(value, "y");
        y_ = nb::borrow(value);
        continue;
      }
      const auto* const report = std::ranges::find(kReports, name, &ReportField::name);
      if (report == std::end(kReports)) {
        std::string names = "y";
        for (const ReportField& known : kReports) names += ", " + std::string(known.name);
        throw Error(op, "a name in out", "one of " + names, "'" + name + "'");
      }
      outputs_.*report->view = room(value, std::string(report->name).c_str());
      if (name == "status") status_ = nb::borrow(value);
    }
  }
  if (!y_.is_valid()) {
    y_ = NewArray(given.output_dtype(), OutputShape(dims), given.bfloat16());
    outputs_.y = room(y_, "y");
  }
  if (with_status && !status_.is_valid()) {
    status_ = NewArray(DType::kInt8, StatusShape(dims));
    outputs_.status = room(status_, "status");
  }
}

}  // namespace ttr::python
