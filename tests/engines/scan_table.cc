// The table of cases.
#include <limits>
#include <utility>

#include "tests/engines/scan_case.h"

namespace ttr::scan {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Shapes {
  const char* name;
  std::int64_t batch, tokens, heads, query_heads, key_heads, value_heads, key_dim, value_dim;
};

// Dimensions below, at and above a vector of every target; tokens about the block.
constexpr Shapes kShapes[] = {
    {"t0", 2, 0, 2, 2, 2, 2, 4, 4},          {"t1", 1, 1, 1, 1, 1, 1, 8, 8},
    {"t1_wide", 2, 1, 2, 2, 2, 2, 24, 300},  {"t31", 1, 31, 1, 1, 1, 1, 16, 16},
    {"t33", 1, 33, 2, 2, 2, 2, 5, 3},        {"t100", 1, 100, 1, 1, 1, 1, 16, 64},
    {"d1", 1, 40, 2, 2, 2, 2, 1, 1},         {"dk1", 1, 20, 1, 1, 1, 1, 1, 48},
    {"dv1", 1, 20, 1, 1, 1, 1, 48, 1},       {"odd", 2, 67, 3, 3, 3, 3, 13, 29},
    {"wide", 1, 5, 1, 1, 1, 1, 3, 1100},     {"grouped_v", 1, 33, 4, 2, 2, 4, 9, 10},
    {"grouped_k", 2, 18, 6, 3, 2, 6, 12, 8}, {"many_q", 2, 40, 2, 6, 1, 2, 10, 20},
};

struct Kind {
  const char* name;
  Case c;
};

std::vector<Kind> Kinds() {
  std::vector<Kind> kinds;
  const auto add = [&](const char* name, auto change) {
    Case c;
    change(c);
    kinds.push_back({name, c});
  };
  add("matrix", [](Case& c) { c.matrix = true; });
  add("weighted_matrix", [](Case& c) { c.matrix = c.importance = true; });
  add("plain", [](Case& c) { c.options.scale = -0.5; });
  add("hgrn", [](Case& c) { c.options.weight = Weight::kComplement; });
  add("rg_lru", [](Case& c) { c.options.weight = Weight::kRootComplement; });
  add("lru", [](Case& c) {
    c.options.weight = Weight::kRootComplement;
    c.phase = true;
  });
  add("complex_lru", [](Case& c) {
    c.options.weight = Weight::kRootComplement;
    c.phase = c.v_im = true;
  });
  add("scalar", [](Case& c) {
    c.gate = Gate::kScalar;
    c.importance = true;
  });
  add("weighted", [](Case& c) { c.importance = true; });
  add("factor", [](Case& c) { c.gate = Gate::kFactor; });
  add("none", [](Case& c) { c.gate = Gate::kNone; });
  return kinds;
}

std::vector<std::pair<const char*, std::vector<double>>> GateLists() {
  return {{"0", {0}},
          {"-1e-3", {-1e-3}},
          {"-.7", {-0.7}},
          {"-7", {-7}},
          {"-70", {-70}},
          {"-inf", {-kInf}},
          {"mixed", {-0.1, -1e-3, 0, -70, -0.7, -1e-8, -kInf, -0.02, -7, 0, -1e-3}}};
}

}  // namespace

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  const auto add = [&](Case c, const std::string& name) {
    c.name = name;
    cases.push_back(std::move(c));
  };
  for (const auto& [kind, plain] : Kinds()) {
    const std::string name = kind;
    for (const Shapes& shape : kShapes) {
      if (!plain.matrix && shape.heads != shape.query_heads) continue;
      Case c = plain;
      c.batch = shape.batch;
      c.tokens = shape.tokens;
      c.heads = shape.heads;
      c.query_heads = shape.query_heads;
      c.key_heads = shape.key_heads;
      c.value_heads = shape.value_heads;
      c.key_dim = shape.key_dim;
      c.value_dim = shape.value_dim;
      add(c, name + "/" + shape.name);
      c.options.read_before = c.head_major = true;
      add(c, name + "/" + shape.name + "/before");
      c.data = c.state = c.gates = DType::kFloat64;
      add(c, name + "/" + shape.name + "/before/f64");
    }
    for (const auto& [gates, log_decays] : GateLists()) {
      Case c = plain;
      c.log_decays = log_decays;
      c.tokens = 50;
      c.value_dim = 20;
      // A factor is no infinity's exponential.
      if (c.gate == Gate::kFactor && log_decays.size() != 1) continue;
      add(c, name + "/" + gates);
      c.options.read_before = true;
      add(c, name + "/" + gates + "/before");
    }
    Case c = plain;
    for (const OutputNorm norm : {OutputNorm::kL2, OutputNorm::kRms}) {
      c.options.output_norm = norm;
      c.value_dim = 35;
      add(c, name + (norm == OutputNorm::kL2 ? "/l2" : "/rms"));
      c.data = DType::kBFloat16;
      add(c, name + (norm == OutputNorm::kL2 ? "/l2/bf16" : "/rms/bf16"));
      c = plain;
    }
    c.reads = false;
    add(c, name + "/write only");
    c = plain;
    c.tokens = 101;
    c.cu_seqlens = {0, 1, 1, 34, 35, 101};
    c.log_decays = {-0.1, -0.3, -2, -0.01, -1e-4};
    add(c, name + "/packed");
    // Whole vectors of every target, in one piece and in several.
    for (const std::int64_t value_dim : {48, 320}) {
      c = plain;
      c.data = DType::kBFloat16;
      c.value_dim = value_dim;
      add(c, name + "/bf16/" + std::to_string(value_dim));
      c.options.read_before = true;
      add(c, name + "/bf16/" + std::to_string(value_dim) + "/before");
    }
    for (const DType data : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
      for (const DType gates : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
        for (const DType state : {DType::kFloat32, DType::kFloat64}) {
          c = plain;
          c.data = data;
          c.gates = gates;
          c.state = state;
          c.value_dim = 36;
          add(c, name + "/types " + std::string(Name(data)) + " " + std::string(Name(gates)) + " " +
                     std::string(Name(state)));
        }
      }
    }
  }
  for (const bool matrix : {false, true}) {
    Case c;
    c.matrix = matrix;
    c.writes = false;
    c.options.scale = -2;
    add(c, matrix ? "read only/matrix" : "read only/vector");
    c.options.output_norm = OutputNorm::kL2;
    add(c, matrix ? "read only/matrix/l2" : "read only/vector/l2");
  }
  Case c;
  c.matrix = true;
  c.options.normalise_qk = true;
  c.options.scale = 0.25;
  add(c, "normalised");
  for (const DType type : {DType::kFloat32, DType::kFloat64}) {
    c = Case();
    c.phase = true;
    c.data = c.gates = c.state = type;
    for (const double largest : {0.01, 2000.0, 1e6}) {
      c.largest_phase = largest;
      add(c, "phases to " + std::to_string(largest) + " " + std::string(Name(type)));
    }
  }
  return cases;
}

}  // namespace ttr::scan
