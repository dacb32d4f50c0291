// ttr zoo: all layers, or one in full; the paper, place by place.
#include "ttr/zoo.h"

#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "experiments/report/table.h"
#include "tools/command.h"
#include "tools/paper.h"
#include "tools/zoo_document.h"
#include "ttr/error.h"
#include "ttr/inputs.h"
#include "ttr/plan.h"

namespace ttr::tools {
namespace {

using nlohmann::ordered_json;

struct ZooArguments {
  std::string name;
  bool json = false;
  bool markdown = false;
  bool paper = false;
};

std::string ShapesOf(const InputSpec& spec) {
  std::string text;
  for (const std::vector<Axis>& shape : spec.shapes) {
    text += (text.empty() ? "" : " or ") + ShapeText(shape);
  }
  return text;
}

ordered_json LayerJson(std::string_view name, const Recipe& recipe, const ZooEntry* entry) {
  const Plan plan = MakePlan(recipe);
  ordered_json json;
  json["name"] = name;
  json["recipe"] = ToString(recipe);
  json["choices"] = ordered_json::parse(ToJson(recipe));
  if (entry != nullptr) {
    json["title"] = entry->title;
    json["source"] = entry->source;
    json["recurrence"] = entry->recurrence;
  }
  json["inputs"] = ordered_json::array();
  for (const InputSpec& spec : InputSpecs(recipe)) {
    json["inputs"].push_back({{"name", spec.name},
                              {"shape", ShapesOf(spec)},
                              {"required", spec.required},
                              {"meaning", spec.meaning}});
  }
  json["state"] = ordered_json::array();
  for (const StateSpec& spec : StateSpecs(recipe)) {
    json["state"].push_back(
        {{"name", spec.name}, {"shape", ShapeText(spec.shape)}, {"meaning", spec.meaning}});
  }
  json["engine"] = plan.engine;
  json["exact"] = plan.exact;
  json["why"] = plan.why;
  return json;
}

ordered_json FeatureJson(const FeatureEntry& feature) {
  return {{"name", feature.name}, {"source", feature.source}, {"formula", feature.formula}};
}

void PrintAll(bool as_json) {
  if (as_json) {
    ordered_json json;
    for (const ZooEntry& entry : Zoo()) {
      json["layers"].push_back(LayerJson(entry.name, ParseRecipe(entry.recipe), &entry));
    }
    for (const FeatureEntry& feature : FeatureMaps()) {
      json["features"].push_back(FeatureJson(feature));
    }
    fmt::print("{}\n", report::DumpJson(json));
    return;
  }
  report::Table layers;
  layers.AddText("layer").AddText("engine").AddText("exact").AddText("source").AddText("recipe");
  for (const ZooEntry& entry : Zoo()) {
    const Recipe recipe = ParseRecipe(entry.recipe);
    const Plan plan = MakePlan(recipe);
    layers.AddRow(
        {entry.name, plan.engine, plan.exact ? "yes" : "no", entry.source, ToString(recipe)});
  }
  fmt::print("{}\n", layers.ToText({.width = TerminalWidth(), .wrap_last = true, .indent = 0}));
  report::Table features;
  features.AddText("feature map").AddText("source").AddText("formula");
  for (const FeatureEntry& feature : FeatureMaps()) {
    features.AddRow({feature.name, feature.source, feature.formula});
  }
  fmt::print("{}\n", features.ToText({.width = TerminalWidth(), .wrap_last = true, .indent = 0}));
  fmt::print(
      "One layer in full: ttr zoo NAME. A feature map: linear_attention{{features: elu1}}.\n");
}

void PrintLayer(const std::string& name, const Recipe& recipe, const ZooEntry* entry) {
  const Plan plan = MakePlan(recipe);
  const auto line = [](std::string_view label, std::string_view text) {
    fmt::print("{:<12}{}\n", label, text);
  };
  if (entry != nullptr) {
    line("layer", fmt::format("{}: {} ({})", name, entry->title, entry->source));
    line("recurrence", entry->recurrence);
  }
  line("recipe", ToString(recipe));
  line("engine", fmt::format("{}: {}", plan.engine, plan.why));
  line("exact", plan.exact ? "yes" : "no");
  report::Table inputs("inputs");
  inputs.AddText("input").AddText("shape").AddText("").AddText("meaning");
  for (const InputSpec& spec : InputSpecs(recipe)) {
    inputs.AddRow(
        {spec.name, ShapesOf(spec), spec.required ? "required" : "optional", spec.meaning});
  }
  report::Table state("state");
  state.AddText("state").AddText("shape").AddText("meaning");
  for (const StateSpec& spec : StateSpecs(recipe)) {
    state.AddRow({spec.name, ShapeText(spec.shape), spec.meaning});
  }
  const report::TextOptions options{.width = TerminalWidth(), .wrap_last = true, .indent = 0};
  fmt::print("\n{}\n{}", inputs.ToText(options), state.ToText(options));
}

const FeatureEntry* FindFeature(std::string_view name) {
  for (const FeatureEntry& feature : FeatureMaps()) {
    if (feature.name == name) return &feature;
  }
  return nullptr;
}

void RunPaper(const ZooArguments& arguments) {
  if (!arguments.name.empty()) {
    throw Error("zoo", "--paper", "without NAME", "beside '" + arguments.name + "'");
  }
  if (arguments.markdown) {
    fmt::print("{}", PaperMarkdown());
  } else if (arguments.json) {
    fmt::print("{}\n", report::DumpJson(PaperJson()));
  } else {
    PrintPaper();
  }
}

void Run(const ZooArguments& arguments) {
  if (arguments.paper) return RunPaper(arguments);
  if (arguments.markdown) {
    fmt::print("{}", ZooMarkdown());
    return;
  }
  if (arguments.name.empty()) return PrintAll(arguments.json);
  if (const FeatureEntry* feature = FindFeature(arguments.name)) {
    if (arguments.json) {
      fmt::print("{}\n", report::DumpJson(FeatureJson(*feature)));
    } else {
      fmt::print("{} ({})\n{}\nUse it as linear_attention{{features: {}}}\n", feature->name,
                 feature->source, feature->formula, feature->name);
    }
    return;
  }
  const Recipe recipe = RecipeArgument(arguments.name);
  const ZooEntry* entry = FindInZoo(arguments.name);
  if (arguments.json) {
    fmt::print("{}\n", report::DumpJson(LayerJson(arguments.name, recipe, entry)));
  } else {
    PrintLayer(arguments.name, recipe, entry);
  }
}

}  // namespace

void AddZoo(Command ttr) {
  Command command = ttr.AddCommand("zoo", "all layers and feature maps, or one in full",
                                   "  ttr zoo\n  ttr zoo gated_deltanet\n"
                                   "  ttr zoo 'rls{ridge: 0.1}' --json\n  ttr zoo --paper");
  const auto arguments = std::make_shared<ZooArguments>();
  command.AddOption("NAME", arguments->name, "a layer, a feature map, or any recipe");
  command.AddFlag("--json", arguments->json, "print JSON");
  command.AddFlag("--markdown", arguments->markdown,
                  "print docs/layers.md; with --paper docs/paper.md");
  command.AddFlag("--paper", arguments->paper, "the paper, place by place: what ttr has for it");
  command.OnRun([arguments] { Run(*arguments); });
}

}  // namespace ttr::tools
