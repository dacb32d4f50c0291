// The table of cases.
#include <limits>
#include <utility>

#include "tests/engines/fast_weights_case.h"

namespace ttr::fast_weights {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Shapes {
  const char* name;
  std::int64_t batch, tokens, heads, query_heads, key_heads, value_heads, key_dim, value_dim;
};

// Dimensions below, at and above a vector of every target; tokens about the chunk and the block.
constexpr Shapes kShapes[] = {
    {"t1", 1, 1, 1, 1, 1, 1, 8, 8},          {"t1_wide", 2, 1, 2, 2, 2, 2, 24, 300},
    {"t3", 1, 3, 2, 2, 2, 2, 16, 40},        {"t4", 1, 4, 1, 1, 1, 1, 5, 3},
    {"t15", 1, 15, 1, 1, 1, 1, 16, 16},      {"t16", 1, 16, 1, 1, 1, 1, 32, 32},
    {"t17", 2, 17, 1, 1, 1, 1, 7, 33},       {"t100", 1, 100, 1, 1, 1, 1, 64, 64},
    {"d1", 1, 40, 2, 2, 2, 2, 1, 1},         {"dk1", 1, 20, 1, 1, 1, 1, 1, 48},
    {"dv1", 1, 20, 1, 1, 1, 1, 48, 1},       {"odd", 2, 67, 3, 3, 3, 3, 13, 29},
    {"d128", 1, 70, 1, 1, 1, 1, 128, 128},   {"grouped_v", 1, 33, 4, 2, 2, 4, 9, 10},
    {"grouped_k", 2, 18, 6, 3, 2, 6, 12, 8}, {"many_q", 2, 21, 2, 6, 1, 2, 10, 20},
    {"many_q1", 1, 2, 2, 6, 2, 1, 10, 20},   {"t0", 2, 0, 2, 2, 2, 2, 4, 4},
};

Case Shaped(const Shapes& s) {
  Case c;
  c.name = s.name;
  c.batch = s.batch;
  c.tokens = s.tokens;
  c.heads = s.heads;
  c.query_heads = s.query_heads;
  c.key_heads = s.key_heads;
  c.value_heads = s.value_heads;
  c.key_dim = s.key_dim;
  c.value_dim = s.value_dim;
  return c;
}

struct Rule {
  const char* name;
  Options options;
};

std::vector<Rule> Rules() {
  Options hebbian;
  hebbian.write = Write::kHebbian;
  hebbian.step = Step::kOne;
  Options weighted = hebbian;
  weighted.step = Step::kInput;
  Options nlms{.step = Step::kNlms, .eta = 0.8, .eps = 0};
  return {{"hebbian", hebbian},
          {"weighted_hebbian", weighted},
          {"delta", {}},
          {"one", {.step = Step::kOne, .normalise_qk = true}},
          {"nlms", nlms},
          {"longhorn", {.step = Step::kLonghorn}},
          {"efla", {.step = Step::kEfla}}};
}

struct Gates {
  const char* name;
  std::vector<double> log_decays;
};

std::vector<Gates> GateLists() {
  return {{"none", {}},
          {"0", {0}},
          {"-1e-3", {-1e-3}},
          {"-.7", {-0.7}},
          {"-7", {-7}},
          {"-70", {-70}},
          {"-inf", {-kInf}},
          {"mixed", {-0.1, -1e-3, 0, -70, -0.7, -1e-3, -kInf, -0.02, -7, 0, -1e-3}},
          {"rarely_-inf", {-0.1, -0.2, -0.3, -0.01, -1e-3, -0.5, -0.6, -0.3, -0.2, -0.1, -0.05,
                           -0.1, -0.2, -0.3, -0.01, -1e-3, -0.5, -0.6, -0.3, -0.2, -kInf}}};
}

}  // namespace

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  auto add = [&](Case c, const std::string& suffix) {
    c.name += suffix;
    cases.push_back(std::move(c));
  };
  const std::vector<Rule> rules = Rules();
  const Options gated = rules[2].options;

  for (const Shapes& shape : kShapes) {
    for (const Rule& rule : {rules[0], rules[2]}) {
      Case c = Shaped(shape);
      c.options = rule.options;
      c.log_decays = {-0.1, -1e-3, -0.5};
      add(c, std::string("/") + rule.name);
      c.options.read_before = true;
      c.head_major = true;
      add(c, std::string("/") + rule.name + "/before");
      c.data = c.state = DType::kFloat64;
      c.gates = DType::kFloat64;
      add(c, std::string("/") + rule.name + "/before/f64");
    }
  }
  for (const Rule& rule : rules) {
    for (const Gates& gates : GateLists()) {
      for (const bool before : {false, true}) {
        for (const std::int64_t tokens : {2, 50}) {
          Case c;
          c.name = std::string(rule.name) + "/" + gates.name + (before ? "/before" : "") + "/t" +
                   std::to_string(tokens);
          c.options = rule.options;
          c.options.read_before = before;
          c.log_decays = gates.log_decays;
          c.tokens = tokens;
          c.heads = c.query_heads = c.key_heads = c.value_heads = 2;
          c.key_dim = 12;
          c.value_dim = 20;
          cases.push_back(c);
        }
      }
    }
  }
  const std::pair<const char*, Keys> keys[] = {{"repeated", Keys::kRepeated},
                                               {"zero", Keys::kZero},
                                               {"collinear", Keys::kCollinear},
                                               {"huge", Keys::kHuge},
                                               {"tiny", Keys::kTiny}};
  for (const auto& [name, kind] : keys) {
    for (const Rule& rule : rules) {
      // One fixed step times a key of any size is no stable recurrence; normalised keys are tested
      // with the others.
      if (kind == Keys::kHuge && rule.options.write == Write::kHebbian) continue;
      for (const std::int64_t tokens : {1, 40}) {
        Case c;
        c.name = std::string("keys ") + name + "/" + rule.name + "/t" + std::to_string(tokens);
        c.options = rule.options;
        c.keys = kind;
        c.tokens = tokens;
        c.key_dim = 16;
        c.value_dim = 16;
        cases.push_back(c);
      }
    }
  }
  for (const DType data : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    for (const DType gates : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
      for (const DType state : {DType::kFloat32, DType::kFloat64}) {
        for (const std::int64_t tokens : {1, 20}) {
          Case c;
          c.name = "types " + std::string(Name(data)) + "/" + std::string(Name(gates)) + "/" +
                   std::string(Name(state)) + "/t" + std::to_string(tokens);
          c.options = gated;
          c.log_decays = {-0.1, -0.5};
          c.data = data;
          c.gates = gates;
          c.state = state;
          c.tokens = tokens;
          c.key_dim = 20;
          c.value_dim = 36;
          cases.push_back(c);
        }
      }
    }
  }
  for (const std::int64_t tokens : {1, 40}) {
    const std::string t = "/t" + std::to_string(tokens);
    Case c;
    c.tokens = tokens;
    c.heads = c.query_heads = c.key_heads = c.value_heads = 2;
    c.key_dim = 10;
    c.value_dim = 35;
    c.options = gated;
    c.options.scale = 0.25;
    c.options.normalise_qk = true;
    c.log_decays = {-0.1, -0.5};
    c.name = "reading l2";
    c.options.output_norm = OutputNorm::kL2;
    add(c, t);
    c.name = "reading rms";
    c.options.output_norm = OutputNorm::kRms;
    c.options.output_norm_eps = 1e-6;
    add(c, t);
    c.data = DType::kBFloat16;
    add(c, t + "/bf16");
    c = Case{
        .name = "write only", .options = gated, .tokens = tokens, .key_dim = 9, .value_dim = 17};
    c.log_decays = {-0.2};
    c.reads = false;
    add(c, t);
    c = Case{
        .name = "read only", .options = gated, .tokens = tokens, .key_dim = 9, .value_dim = 17};
    c.options.step = Step::kOne;
    c.options.scale = -2;
    c.writes = false;
    add(c, t);
    c = Case{.name = "constant decay", .options = gated, .tokens = tokens, .heads = 2};
    c.factors = {0.9, 0.25};
    add(c, t);
    c.options = rules[0].options;
    add(c, t + "/hebbian");
  }
  Case packed{.name = "packed", .options = gated, .tokens = 101, .heads = 2, .query_heads = 2};
  packed.value_heads = 2;
  packed.key_dim = 11;
  packed.value_dim = 40;
  packed.log_decays = {-0.1, -0.3, -2, -0.01, -kInf};
  packed.cu_seqlens = {0, 1, 1, 34, 35, 101};
  add(packed, "");
  packed.options.read_before = true;
  add(packed, "/before");
  Case packed_short = packed;
  packed_short.tokens = 5;
  packed_short.cu_seqlens = {0, 2, 2, 5};
  add(packed_short, "/short");
  return cases;
}

}  // namespace ttr::fast_weights
