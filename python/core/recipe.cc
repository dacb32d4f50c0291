// Recipes, the zoo, plans, and what a recipe takes and carries.
#include <nanobind/nanobind.h>
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "python/core/calls.h"
#include "python/core/copies.h"
#include "python/core/module.h"
#include "python/names.h"
#include "ttr/error.h"
#include "ttr/plan.h"
#include "ttr/zoo.h"

namespace ttr::python {
namespace {

std::string Quoted(std::string_view text) {
  return nb::repr(nb::str(text.data(), text.size())).c_str();
}

nb::list AxisNames(const std::vector<Axis>& axes) {
  nb::list names;
  for (const Axis axis : axes) {
    const std::string_view name = Name(axis);
    names.append(nb::str(name.data(), name.size()));
  }
  return names;
}

std::string_view RangeText(Range range) {
  switch (range) {
    case Range::kNonNegative: return ">= 0";
    case Range::kNonPositive: return "<= 0";
    default: return "any";
  }
}

std::string_view TypicalText(Typical typical) {
  switch (typical) {
    case Typical::kNormal: return "normal";
    case Typical::kKeys: return "keys";
    case Typical::kSmall: return "small";
    case Typical::kUnit: return "unit";
    case Typical::kHalf: return "half";
    case Typical::kOneUp: return "one_up";
    case Typical::kMinus: return "minus";
    case Typical::kHalving: return "halving";
  }
  return "normal";
}

/// The names of the inputs that one weighs.
nb::list WeighedNames(const InputSpec& spec) {
  nb::list names;
  for (const InputField& field : InputFields()) {
    if (std::ranges::find(spec.weighs, field.view) != spec.weighs.end()) {
      names.append(nb::str(field.name.data(), field.name.size()));
    }
  }
  return names;
}

nb::list InputDictionaries(nb::handle recipe) {
  nb::list result;
  for (const InputSpec& spec : InputSpecs(RecipeFrom(recipe))) {
    nb::list shapes;
    for (const std::vector<Axis>& shape : spec.shapes) shapes.append(AxisNames(shape));
    nb::dict entry;
    entry["name"] = spec.name;
    entry["keyword"] = Keyword(spec.name);
    entry["shapes"] = shapes;
    entry["required"] = spec.required;
    entry["of_query"] = spec.of_query;
    entry["range"] = RangeText(spec.range);
    entry["typical"] = TypicalText(spec.typical);
    entry["neutral"] = nb::cast(spec.neutral);
    entry["weighs"] = WeighedNames(spec);
    entry["weightless"] = spec.weightless;
    entry["meaning"] = spec.meaning;
    result.append(entry);
  }
  return result;
}

nb::list StateDictionaries(nb::handle recipe) {
  nb::list result;
  for (const StateSpec& spec : StateSpecs(RecipeFrom(recipe))) {
    nb::dict entry;
    entry["name"] = spec.name;
    entry["shape"] = AxisNames(spec.shape);
    entry["counts"] = spec.counts();
    entry["meaning"] = spec.meaning;
    result.append(entry);
  }
  return result;
}

/// ttr::Plan and ttr::Cost in one.
struct PlannedRecipe {
  Recipe recipe;
  Plan plan;
  Cost cost;
};

PlannedRecipe MakePlannedRecipe(nb::handle recipe, std::int64_t key_dim, std::int64_t value_dim,
                                std::int64_t heads, std::int64_t tokens) {
  PlannedRecipe result{RecipeFrom(recipe), {}, {}};
  Dims dims;
  dims.tokens = tokens;
  dims.query_heads = dims.key_heads = dims.value_heads = dims.heads = heads;
  dims.key_dim = key_dim;
  dims.value_dim = value_dim;
  CheckDims("plan", dims);
  result.plan = MakePlan(result.recipe);
  result.cost = EstimateCost(result.recipe, result.plan, dims);
  return result;
}

nb::object Json() { return nb::module_::import_("json"); }

Recipe WithOptions(const Recipe& recipe, const nb::kwargs& options) {
  Recipe changed = recipe;
  for (const auto& [name, value] : options) {
    const bool flag = nb::isinstance<nb::bool_>(value);
    const std::string text =
        flag ? (nb::cast<bool>(value) ? "true" : "false") : std::string(nb::str(value).c_str());
    SetOption(changed, nb::cast<std::string>(name), text);
  }
  Validate(changed);
  return changed;
}

std::int64_t PhiDimOf(const Recipe& recipe, std::int64_t key_dim, std::int64_t features) {
  Dims dims;
  dims.key_dim = key_dim;
  dims.features = features;
  return PhiDim(recipe, dims);
}

nb::dict ZooDictionary() {
  nb::dict zoo;
  for (const ZooEntry& entry : Zoo()) {
    zoo[nb::str(entry.name.data(), entry.name.size())] = nb::cast(entry);
  }
  return zoo;
}

nb::dict FeatureDictionary() {
  nb::dict maps;
  for (const FeatureEntry& entry : FeatureMaps()) {
    maps[nb::str(entry.name.data(), entry.name.size())] =
        nb::str(entry.formula.data(), entry.formula.size());
  }
  return maps;
}

void BindPlan(nb::module_& module) {
  using P = PlannedRecipe;
  nb::class_<P>(module, "Plan", "What runs a recipe, why, and what a token of one head costs.")
      .def_prop_ro(
          "engine", [](const P& p) { return p.plan.engine; },
          "\"fast_weights\", \"scan\", \"least_squares\" or \"definition\"")
      .def_prop_ro(
          "exact", [](const P& p) { return p.plan.exact; },
          "Is the regression solved (to rounding), or approached by steps?")
      .def_prop_ro(
          "why", [](const P& p) { return p.plan.why; }, "One sentence.")
      .def_prop_ro(
          "flops", [](const P& p) { return p.cost.flops_per_token; },
          "Useful floating-point operations per token and memory.")
      .def_prop_ro(
          "bytes", [](const P& p) { return p.cost.bytes_per_token; },
          "Bytes of state, q, k, v and y touched per token and memory.")
      .def_prop_ro(
          "state_bytes", [](const P& p) { return p.cost.state_bytes; }, "The size of one memory.")
      .def("__repr__", [](const P& p) {
        return "Plan(engine='" + std::string(p.plan.engine) +
               "', exact=" + (p.plan.exact ? "True" : "False") + ", why=" + Quoted(p.plan.why) +
               ")";
      });
  module.def("plan", &MakePlannedRecipe, nb::arg("recipe"), nb::kw_only(), nb::arg("key_dim") = 64,
             nb::arg("value_dim") = 64, nb::arg("heads") = 1, nb::arg("tokens") = 1024,
             nb::sig("def plan(recipe: str | dict[str, typing.Any] | Recipe, *, key_dim: int = 64, "
                     "value_dim: int = 64, heads: int = 1, tokens: int = 1024) -> Plan"),
             "Which engine runs a recipe and what that costs at these sizes. O(1).");
}

nb::tuple Reduce(const Recipe& recipe) {
  return nb::make_tuple(nb::type<Recipe>(), nb::make_tuple(ToString(recipe)));
}

/// Named layers, feature maps, and what recipes take and carry.
void BindCatalogue(nb::module_& module) {
  nb::class_<ZooEntry>(module, "ZooEntry", "A named layer.")
      .def_ro("name", &ZooEntry::name)
      .def_ro("recipe", &ZooEntry::recipe, "A recipe line.")
      .def_ro("title", &ZooEntry::title, "As its paper calls it.")
      .def_ro("source", &ZooEntry::source, "The paper: an arXiv number, or a classic.")
      .def_ro("recurrence", &ZooEntry::recurrence, "The exact meaning.")
      .def("__str__", [](const ZooEntry& entry) { return entry.name; })
      .def("__repr__", [](const ZooEntry& entry) {
        return "ZooEntry(name=" + Quoted(entry.name) + ", recipe=" + Quoted(entry.recipe) + ")";
      });
  module.def("zoo", &ZooDictionary, nb::sig("def zoo() -> dict[str, ZooEntry]"),
             "Every named layer, in the order of the catalogue: name -> entry.");
  module.def("feature_maps", &FeatureDictionary, nb::sig("def feature_maps() -> dict[str, str]"),
             "Every feature map: name -> formula.");
  module.def("input_specs", &InputDictionaries, nb::arg("recipe"),
             nb::sig("def input_specs(recipe: str | dict[str, typing.Any] | Recipe) -> "
                     "list[dict[str, typing.Any]]"),
             R"(The inputs that a recipe takes, required ones first. Each is a dictionary:

    name       "log_decay", "features.w"
    keyword    the same as an argument: "features_w"
    shapes     any of these, as names of axes: [["B", "T", "H"], ["B", "T", "H", "Dk"]]
    required   must it be given?
    of_query   does each query take it, so that a call which only reads needs it, too?
    range      ">= 0", "<= 0" or "any"
    typical    numbers for a test: "normal"; "keys", normal, of variance 1 / Dk; "small", of deviation
               0.1; "unit", "half", "one_up", "minus", "halving", between 0 and 1, 0 and 1/2, 1 and 2,
               -1 and 0, -log 2 and 0
    neutral    the value that leaves a layer as if it had no such input, or None
    weighs     the inputs of which a row that is not finite counts as zeros where this one is exactly
    weightless this number
    meaning    text)");
  module.def(
      "state_specs", &StateDictionaries, nb::arg("recipe"),
      nb::sig("def state_specs(recipe: str | dict[str, typing.Any] | Recipe) -> "
              "list[dict[str, typing.Any]]"),
      R"(What the memory of a recipe consists of: the arrays of a state. Each is a dictionary:

    name       "state", "state.n", ...
    shape      names of axes
    counts     whole numbers (int64)?
    meaning    text)");
  module.def(
      "engines",
      [] {
        nb::list names;
        for (const std::string_view name : Engines()) {
          names.append(nb::str(name.data(), name.size()));
        }
        return names;
      },
      nb::sig("def engines() -> list[str]"), "The names of all engines.");
}

}  // namespace

Recipe RecipeFrom(nb::handle recipe) {
  if (nb::isinstance<Recipe>(recipe)) return nb::cast<Recipe>(recipe);
  if (nb::isinstance<nb::str>(recipe)) return ParseRecipe(nb::cast<std::string_view>(recipe));
  if (nb::isinstance<nb::dict>(recipe)) {
    return RecipeFromJson(nb::cast<std::string>(Json().attr("dumps")(recipe)));
  }
  throw nb::type_error(("[recipe] a recipe must be text, a dictionary or a Recipe but is a " +
                        std::string(nb::str(recipe.type().attr("__name__")).c_str()))
                           .c_str());
}

void BindRecipe(nb::module_& module) {
  nb::class_<Recipe> bound(module, "Recipe",
                           R"(A sequence layer as a value: three choices, and how it is read.

    Recipe("gated_deltanet")                            # a name of the zoo
    Recipe("mesa{decay: 0.99, ridge: 1e-3}")            # with changes
    Recipe("decay(scalar) | linear | sgd")              # weights | function class | optimizer
    Recipe({"weights": {"decay": "scalar"}, ...})       # the form of JSON files

It does not change, compares and hashes by value, and prints as one line that gives it again.
ValueError: a recipe without a meaning; the text names the unknown word and the nearest known one.)");
  BindCopies(bound, "Recipe");
  bound
      .def(
          "__init__",
          [](Recipe* self, nb::handle recipe) { new (self) Recipe(RecipeFrom(recipe)); },
          nb::arg("recipe"),
          nb::sig("def __init__(self, recipe: str | dict[str, typing.Any] | Recipe) -> None"))
      .def(
          "to_json", [](const Recipe& recipe) { return ToJson(recipe); },
          "As text of JSON; Recipe(json.loads(text)) gives it again.")
      .def(
          "to_dict",
          [](const Recipe& recipe, bool every_option) {
            return Json().attr("loads")(ToJson(recipe, every_option));
          },
          nb::kw_only(), nb::arg("every_option") = false,
          nb::sig("def to_dict(self, *, every_option: bool = False) -> dict[str, typing.Any]"),
          "The form of JSON files: {\"weights\": {\"decay\": \"scalar\"}, ...}; with every_option "
          "also "
          "what has its default.")
      .def_prop_ro("family", &FamilyName,
                   R"(Which kind of memory the choices make: "hebbian", "gated_vector", "sgd",
"least_squares", "kernel_smoother", "kernel_regression", "kernel_descent", "local_polynomial" or
"network".)")
      .def(
          "phi_dim", &PhiDimOf, nb::arg("key_dim"), nb::arg("features") = 1,
          R"(Numbers in phi(k) of keys of `key_dim` channels, with the 1 of an affine memory; `features`
is the number of rows of `features.w`.)")
      .def(
          "option",
          [](const Recipe& recipe, std::string_view name) { return GetOption(recipe, name); },
          nb::arg("name"), "An option by its name, as text: recipe.option(\"ridge\").")
      .def("with_options", &WithOptions, nb::arg("options"),
           nb::sig("def with_options(self, **options: object) -> Recipe"),
           "The recipe with some options changed, as in braces: with_options(ridge=1e-3).")
      .def("__str__", &ToString)
      .def("__repr__",
           [](const Recipe& recipe) { return "Recipe(" + Quoted(ToString(recipe)) + ")"; })
      .def(
          "__eq__",
          [](const Recipe& recipe, nb::handle other) {
            return nb::isinstance<Recipe>(other) && recipe == nb::cast<Recipe>(other);
          },
          nb::arg("other").none(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__",
           [](const Recipe& recipe) { return std::hash<std::string>()(ToString(recipe)); })
      .def("__reduce__", &Reduce, nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"));
  BindCatalogue(module);
  BindPlan(module);
}

}  // namespace ttr::python
