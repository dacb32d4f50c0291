// Which works `ttr bench` runs.
#include <algorithm>
#include <thread>

#include "tools/bench_least_squares.h"
#include "tools/bench_networks.h"
#include "tools/bench_pairs.h"
#include "tools/bench_work.h"
#include "tools/command.h"
#include "ttr/zoo.h"

namespace ttr::tools {
namespace {

constexpr double kCacheBytes = 2 << 20;  // of all states that are decoded from cache
constexpr double kDramBytes = 64 << 20;  // and from main memory
constexpr std::int64_t kDraft = 4;       // tokens
constexpr std::int64_t kSlots = 64;      // a power of two
// Curves of all layers would be a thicket; these stand for their families.
constexpr std::string_view kCurveLayers[] = {"gated_deltanet", "kda", "retnet", "hgrn"};
constexpr std::int64_t kCurveTokens = 1024;
constexpr std::int64_t kCurveHeads = 8;

struct Named {
  std::string name;
  Recipe recipe;
};

// Layers that keep pairs and networks have measurements of their own, of sizes at which they end;
// and the definition is no measure of speed.
bool InEveryMeasurement(const Recipe& recipe) {
  return !KeepsPairs(recipe) && recipe.function.kind != FunctionClass::kNetwork &&
         MakePlan(recipe).engine != kDefinition;
}

std::vector<Named> Layers(const BenchOptions& options) {
  std::vector<Named> layers;
  for (const std::string& name : options.what) layers.push_back({name, RecipeArgument(name)});
  if (!layers.empty()) return layers;
  for (const ZooEntry& entry : Zoo()) {
    const Recipe recipe = ParseRecipe(entry.recipe);
    if (InEveryMeasurement(recipe)) layers.push_back({std::string(entry.name), recipe});
  }
  return layers;
}

Dims MakeDims(std::int64_t tokens, std::int64_t heads, std::int64_t d) {
  Dims dims;
  dims.tokens = tokens;
  dims.heads = dims.query_heads = dims.key_heads = dims.value_heads = heads;
  dims.key_dim = dims.value_dim = dims.features = d;
  return dims;
}

// Bytes of one memory.
double StateBytes(const Recipe& recipe, std::int64_t d) {
  Dims dims = MakeDims(1, 1, d);
  dims.hidden = recipe.function.expansion * d;
  return EstimateCost(recipe, MakePlan(recipe), dims).state_bytes;
}

// Those of the measurement least_squares, the delta rule last; none where no such layer is named.
std::vector<Named> LeastSquaresLayers(const BenchOptions& options) {
  std::vector<Named> layers;
  const auto add = [&](const std::string& name) { layers.push_back({name, RecipeArgument(name)}); };
  if (options.what.empty()) {
    for (const std::string_view name : kLeastSquaresLayers) add(std::string(name));
  }
  for (const std::string& name : options.what) {
    if (CarriesGram(RecipeArgument(name))) add(name);
  }
  if (!layers.empty()) add(std::string(kDeltaRule));
  return layers;
}

// Collects the works of all measurements.
class Collector {
 public:
  Collector(const BenchOptions& options, const std::function<Executor&(int)>& executor,
            BenchMemory& memory)
      : options_(options), executor_(executor), memory_(memory) {}

  void Collect(Measurement measurement, const Named& layer, std::int64_t d) {
    const Dims dims = MakeDims(options_.tokens, options_.HeadsOf(measurement), d);
    switch (measurement) {
      case Measurement::kLimits:
      case Measurement::kOperators: break;
      case Measurement::kPrefill: Add(layer, {.measurement = measurement, .dims = dims}); break;
      case Measurement::kDecode: CollectDecode(measurement, layer, d); break;
      case Measurement::kTrain:
        Add(layer, {.measurement = measurement, .variant = "forward", .dims = dims});
        if (HasFastBackward(layer.recipe)) {
          Add(layer, {.measurement = measurement,
                      .doing = Doing::kForwardBackward,
                      .variant = "both",
                      .dims = dims});
        }
        break;
      case Measurement::kThreads: {
        const Dims one = MakeDims(options_.tokens, 1, d);
        const int threads = std::max(2, options_.threads);
        Add(layer, {.measurement = measurement, .variant = "one", .dims = one}, 1);
        Add(layer, {.measurement = measurement, .variant = "several", .dims = one}, threads);
        break;
      }
      case Measurement::kBf16:
        Add(layer, {.measurement = measurement, .variant = "float32", .dims = dims});
        Add(layer, {.measurement = measurement,
                    .variant = "bfloat16",
                    .dims = dims,
                    .dtype = DType::kBFloat16});
        if (!Layer(layer.recipe).HasBFloat16Products()) break;
        Add(layer, {.measurement = measurement,
                    .variant = "products",
                    .dims = dims,
                    .dtype = DType::kBFloat16,
                    .bfloat16_products = true});
        break;
      case Measurement::kLeastSquares: CollectLeastSquares(layer, d); break;
      case Measurement::kPairs:
      case Measurement::kNetworks: break;
      case Measurement::kCurves:
        if (d == options_.dims.back() && OnCurves(layer)) CollectCurves(layer, d);
        break;
    }
  }

  void CollectPairs(std::int64_t d) {
    for (const PairsLine& line : PairsLines()) {
      const std::int64_t heads =
          line.heads > 0 ? line.heads : options_.HeadsOf(Measurement::kPairs);
      Setting setting{.measurement = Measurement::kPairs,
                      .variant = "forward",
                      .dims = MakeDims(line.longer * options_.tokens, heads, d),
                      .dtype = line.dtype,
                      .reach = line.reach};
      const Named layer{line.name, RecipeArgument(line.recipe)};
      Add(layer, setting);
      setting.variant = "both";
      setting.doing = Doing::kForwardBackward;
      Add(layer, setting);
    }
    for (const PairsLine& line : PairsDecodeLines()) {
      const Named layer{line.name, RecipeArgument(line.recipe)};
      AddStepsOnPairs(Measurement::kPairs, layer, d, "DRAM", kDramBytes);
      AddStepsOnPairs(Measurement::kPairs, layer, d, "DRAM, bfloat16", kDramBytes,
                      DType::kBFloat16);
    }
  }

  void CollectNetworks(std::int64_t d) {
    constexpr Measurement kMeasurement = Measurement::kNetworks;
    const Dims dims = MakeDims(options_.tokens, options_.HeadsOf(kMeasurement), d);
    const Dims one = MakeDims(options_.tokens, 1, d);
    const int threads = std::max(2, options_.threads);
    for (const NetworkLine& line : NetworkLines()) {
      Named layer{line.name, RecipeArgument(line.recipe)};
      Add(layer, {.measurement = kMeasurement, .variant = "forward", .dims = dims}, 1);
      Add(layer, {.measurement = kMeasurement, .variant = "heads, threads", .dims = dims}, threads);
      Add(layer, {.measurement = kMeasurement, .variant = "one head", .dims = one}, 1);
      Add(layer, {.measurement = kMeasurement, .variant = "one head, threads", .dims = one},
          threads);
      Add(layer,
          {.measurement = kMeasurement,
           .doing = Doing::kForwardBackward,
           .variant = "both",
           .dims = dims},
          1);
      layer.recipe.optimizer.mini_batch = 1;  // so that every token ends one
      AddInCache(layer, kMeasurement, d);
    }
  }

  std::vector<Work> works;

 private:
  void Add(const Named& layer, Setting setting, int threads = 0) {
    setting.dims.hidden = layer.recipe.function.expansion * setting.dims.key_dim;
    setting.threads = threads > 0 ? threads : options_.threads;
    works.emplace_back(layer.name, layer.recipe, setting, executor_(setting.threads), memory_);
  }

  void CollectDecode(Measurement measurement, const Named& layer, std::int64_t d) {
    const double state = StateBytes(layer.recipe, d);
    if (!layer.recipe.reading.causal) return;
    if (KeepsPairs(layer.recipe)) return CollectStepsOnPairs(measurement, layer, d);
    const auto add = [&](const char* variant, double bytes, bool decoder) {
      const auto heads = static_cast<std::int64_t>(std::max(1.0, bytes / state));
      Add(layer, {.measurement = measurement,
                  .doing = Doing::kSteps,
                  .variant = variant,
                  .dims = MakeDims(1, heads, d),
                  .decoder = decoder});
    };
    const bool decoder = HasDecoder(layer.recipe, MakeDims(1, 1, d));
    add("cache", kCacheBytes, decoder);
    add("DRAM", kDramBytes, decoder);
    if (Decoder::KeepsDrafts(Layer(layer.recipe))) {
      for (const auto& [variant, bytes] :
           {std::pair("draft, cache", kCacheBytes), std::pair("draft, DRAM", kDramBytes)}) {
        const auto heads = static_cast<std::int64_t>(std::max(1.0, bytes / state));
        Add(layer, {.measurement = measurement,
                    .doing = Doing::kSteps,
                    .variant = variant,
                    .dims = MakeDims(kDraft, heads, d),
                    .decoder = true,
                    .draft = true});
      }
      for (const auto& [variant, bytes] :
           {std::pair("narrow, cache", kCacheBytes), std::pair("narrow, DRAM", kDramBytes)}) {
        const auto heads = static_cast<std::int64_t>(std::max(1.0, bytes / state));
        Add(layer, {.measurement = measurement,
                    .doing = Doing::kSteps,
                    .variant = variant,
                    .dims = MakeDims(1, heads, d),
                    .state = DType::kBFloat16,
                    .decoder = true});
      }
    }
    if (!CarriesGram(layer.recipe)) {
      for (const auto& [where, bytes] :
           {std::pair("cache", kCacheBytes), std::pair("DRAM", kDramBytes)}) {
        const auto heads = static_cast<std::int64_t>(std::max(1.0, bytes / state));
        Setting rows{.measurement = measurement,
                     .doing = Doing::kSteps,
                     .variant = std::string("rows, ") + where,
                     .dims = MakeDims(1, std::max<std::int64_t>(1, heads / kSlots), d),
                     .decoder = decoder};
        rows.dims.batch = kSlots;
        Add(layer, rows);
        rows.variant = std::string("slots, ") + where;
        rows.decoder = false;
        rows.slots = true;
        Add(layer, rows);
      }
    }
    if (!decoder) return;
    add("written, cache", kCacheBytes, false);
    add("written, DRAM", kDramBytes, false);
  }

  // Single tokens beside as many pairs as fill so many bytes in float32.
  void AddStepsOnPairs(Measurement measurement, const Named& layer, std::int64_t d,
                       const char* variant, double bytes, DType dtype = DType::kFloat32) {
    const std::int64_t heads = options_.HeadsOf(measurement);
    const auto pairs = static_cast<std::int64_t>(bytes / static_cast<double>(8 * heads * d));
    Add(layer, {.measurement = measurement,
                .doing = Doing::kSteps,
                .variant = variant,
                .dims = MakeDims(1, heads, d),
                .dtype = dtype,
                .pairs = std::max<std::int64_t>(pairs, 2)});
  }

  // Single tokens, in states of one size that fill a cache.
  void AddInCache(const Named& layer, Measurement measurement, std::int64_t d) {
    const double fitting = kCacheBytes / StateBytes(layer.recipe, d);
    const auto heads = static_cast<std::int64_t>(std::max(1.0, fitting));
    Add(layer,
        {.measurement = measurement,
         .doing = Doing::kSteps,
         .variant = "cache",
         .dims = MakeDims(1, heads, d)},
        1);
  }

  void CollectStepsOnPairs(Measurement measurement, const Named& layer, std::int64_t d) {
    if (MakePlan(layer.recipe).engine == kDefinition || layer.recipe.weights.window > 0) return;
    AddStepsOnPairs(measurement, layer, d, "cache", kCacheBytes);
    AddStepsOnPairs(measurement, layer, d, "DRAM", kDramBytes);
  }

  void CollectLeastSquares(const Named& layer, std::int64_t d) {
    constexpr Measurement kMeasurement = Measurement::kLeastSquares;
    if (MakePlan(layer.recipe).engine == kDefinition) {
      const std::int64_t tokens = std::min(options_.tokens, kDefinitionTokens);
      Add(layer,
          {.measurement = kMeasurement, .variant = "forward", .dims = MakeDims(tokens, 1, d)});
      return;
    }
    const Dims dims =
        MakeDims(std::min(options_.tokens, kLeastSquaresTokens), options_.HeadsOf(kMeasurement), d);
    Add(layer, {.measurement = kMeasurement, .variant = "forward", .dims = dims});
    if (HasFastBackward(layer.recipe)) {
      Add(layer, {.measurement = kMeasurement,
                  .doing = Doing::kForwardBackward,
                  .variant = "both",
                  .dims = dims});
    }
    CollectDecode(kMeasurement, layer, d);
  }

  bool OnCurves(const Named& layer) const {
    return !options_.what.empty() || std::find(std::begin(kCurveLayers), std::end(kCurveLayers),
                                               layer.name) != std::end(kCurveLayers);
  }

  void CollectCurves(const Named& layer, std::int64_t d) {
    const std::int64_t tokens = std::min(options_.tokens, kCurveTokens);
    const std::int64_t heads = std::min(options_.HeadsOf(Measurement::kCurves), kCurveHeads);
    const auto add = [&](const char* axis, const Dims& dims, int threads) {
      Add(layer, {.measurement = Measurement::kCurves, .variant = axis, .dims = dims}, threads);
    };
    for (std::int64_t t = tokens / 16; t <= 8 * tokens; t *= 2) {
      if (t > 0) add("T", MakeDims(t, heads, d), options_.threads);
    }
    for (const std::int64_t size : {16, 32, 64, 96, 128, 192, 256}) {
      add("d", MakeDims(tokens, heads, size), options_.threads);
    }
    for (std::int64_t h = 1; h <= 8 * heads; h *= 2) {
      add("H", MakeDims(tokens, h, d), options_.threads);
    }
    const int most = std::max(2, static_cast<int>(std::thread::hardware_concurrency()));
    for (int threads = 1; threads < 2 * most; threads *= 2) {
      add("threads", MakeDims(tokens, heads, d), std::min(threads, most));
    }
  }

  const BenchOptions& options_;
  const std::function<Executor&(int)>& executor_;
  BenchMemory& memory_;
};

}  // namespace

std::vector<Work> MakeWorks(const BenchOptions& options,
                            const std::function<Executor&(int threads)>& executor,
                            BenchMemory& memory) {
  const std::vector<Named> layers = Layers(options);
  Collector collector(options, executor, memory);
  for (std::size_t measurement = 0; measurement < std::size(kMeasurementNames); ++measurement) {
    const bool asked = std::find(options.measurements.begin(), options.measurements.end(),
                                 kMeasurementNames[measurement]) != options.measurements.end();
    if (!asked) continue;
    const bool least_squares = kMeasurementNames[measurement] == Name(Measurement::kLeastSquares);
    for (const std::int64_t d : options.dims) {
      if (static_cast<Measurement>(measurement) == Measurement::kPairs) {
        collector.CollectPairs(d);
        continue;
      }
      if (static_cast<Measurement>(measurement) == Measurement::kNetworks) {
        collector.CollectNetworks(d);
        continue;
      }
      for (const Named& layer : least_squares ? LeastSquaresLayers(options) : layers)
        collector.Collect(static_cast<Measurement>(measurement), layer, d);
    }
  }
  return std::move(collector.works);
}

}  // namespace ttr::tools
