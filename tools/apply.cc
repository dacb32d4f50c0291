// ttr apply: runs a layer on tensors, the door for all outside tools.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string_view>
#include <system_error>

#include "tools/bench_least_squares.h"
#include "tools/command.h"
#include "tools/files.h"
#include "tools/long_work.h"
#include "tools/tensor_io.h"
#include "ttr/error.h"
#include "ttr/layer.h"
#include "ttr/util/safetensors.h"
#include "ttr/version.h"

namespace ttr::tools {
namespace {

struct ApplyArguments {
  std::string recipe;
  std::string in;
  std::string out;
  std::string via = "engine";
  std::int64_t split = 1;
  int threads = 0;
  bool gradients = false;
  bool bfloat16_products = false;
  bool reports = false;
  bool quiet = false;
};

// So many tokens, of which so many run at a time: by Step, or by Forward.
struct Pieces {
  std::int64_t tokens, piece;
  bool step;
};

// Runs tokens in pieces; each piece continues with the state of the one before.
void RunPieces(const Layer& layer, const Inputs& inputs, const Pieces& pieces, State& state,
               const Outputs& outputs, const CallOptions& options) {
  for (std::int64_t begin = 0; begin < pieces.tokens; begin += pieces.piece) {
    const std::int64_t count = std::min(pieces.piece, pieces.tokens - begin);
    Tensor cu_seqlens;
    const Inputs part = SliceTokens(layer.recipe(), inputs, begin, count, cu_seqlens);
    Outputs part_outputs{.y = outputs.y.Slice(1, begin, count)};
    for (const ReportField& report : kReports) {
      const TensorView& whole = outputs.*report.view;
      if (whole.defined()) part_outputs.*report.view = whole.Slice(1, begin, count);
    }
    if (pieces.step) {
      layer.Step(part, state, part_outputs, options);
    } else {
      layer.Forward(part, state, part_outputs, options);
    }
  }
}

void AddState(const State& state, std::string_view prefix, TensorFile& file) {
  for (const State::Entry& entry : state.entries()) {
    file.tensors[std::string(prefix) + entry.name] = Tensor::Copy(entry.view);
  }
}

// The final state; of kept pairs without the room behind them, unless it is that of a whole window.
void AddFinalState(const Recipe& recipe, const State& state, TensorFile& file) {
  AddState(state, "", file);
  const TensorView lengths = state.Get("state.length");
  if (!lengths.defined()) return;
  const auto all = Tensor::Copy(lengths);
  const auto counts = all.as<std::int64_t>();
  const std::int64_t held = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
  const std::int64_t window = recipe.weights.window;
  for (const State::Entry& entry : state.entries()) {
    if (entry.view.rank() < 3) continue;
    if (window > 0 && entry.view.size(1) >= 2 * window) continue;
    file.tensors[entry.name] = Tensor::Copy(entry.view.Slice(1, 0, held));
  }
}

void AddGradients(const Layer& layer, const LayerFile& given, const State& initial,
                  const CallOptions& options, TensorFile& file) {
  Inputs gradients;
  for (const InputField& field : InputFields()) {
    const TensorView& input = given.inputs.*field.view;
    if (!input.defined() || !IsFloating(input.dtype())) continue;
    const std::string name = "d" + std::string(field.name);
    file.tensors[name] = Tensor(input.dtype(), input.shape());
    gradients.*field.view = file.tensors[name].view();
  }
  State dinitial;
  layer.Backward(given.inputs, initial, given.dy, given.dstate, gradients, dinitial, options);
  AddState(dinitial, "d", file);
}

// A file that could not be written would be said after the work.
void RequireFolderOf(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;
  if (folder.empty() || std::filesystem::is_directory(folder, ignored)) return;
  throw SystemError("cannot write " + path + ": its folder is not there");
}

// Says that the definition runs this call, and for how long; shows how far it is.
std::unique_ptr<Executor> WatchDefinition(const ApplyArguments& arguments, const Layer& layer,
                                          const LayerFile& given, const Dims& dims,
                                          std::int64_t piece, Executor& threads) {
  double seconds = DefinitionSeconds(layer.recipe(), dims, threads.threads());
  const std::int64_t pieces = piece > 0 ? (dims.tokens + piece - 1) / piece : 1;
  std::int64_t tasks = std::max<std::int64_t>(1, pieces) * dims.states() * dims.heads;
  if (arguments.gradients) {
    // Central differences: two calls for every number of an input, the numbers spread over the
    // threads, each call on one of them.
    const double one = DefinitionSeconds(layer.recipe(), dims, 1) / threads.threads();
    for (const InputField& field : InputFields()) {
      const TensorView& input = given.inputs.*field.view;
      if (!input.defined() || !IsFloating(input.dtype())) continue;
      const std::int64_t numbers = input.shape().elements();
      seconds += 2 * one * static_cast<double>(numbers);
      tasks += std::min<std::int64_t>(numbers, threads.threads());
    }
  }
  if (!arguments.quiet) {
    if (arguments.via == "engine") Note(layer.plan().why);
    NoteLongWork(arguments.recipe, seconds);
  }
  const bool shown = seconds > kLongSeconds && !arguments.quiet;
  return std::make_unique<ProgressExecutor>(threads, "apply", tasks, !shown);
}

// What can be wrong with the arguments and the file, found before the first note and long work.
Dims CheckCall(const ApplyArguments& arguments, const Recipe& recipe, const LayerFile& given) {
  if ((arguments.via == "step" || arguments.split > 1) && !recipe.reading.causal) {
    throw Error("apply", "--split and --via step",
                "absent for a recipe that reads the whole sequence at once (causal: false)",
                "given");
  }
  const Dims dims = CheckInputs("apply", recipe, given.inputs, Needs::kBoth, &given.state);
  CheckRanges("apply", recipe, given.inputs);
  CheckState("apply", recipe, dims, given.state);
  if (arguments.gradients && !given.dy.defined()) {
    throw Error("apply", "dy", "in the input file, the gradient of y (for --grad)", "missing");
  }
  RequireFolderOf(arguments.out);
  return dims;
}

// The outputs of a call: y and status, iterations of a solver that stops at a tolerance, residuals
// of those that iterate; with `reports` all that the recipe has.
class ApplyOutputs {
 public:
  ApplyOutputs(const Recipe& recipe, const Dims& dims, DType dtype, bool reports)
      : y_(dtype, OutputShape(dims)) {
    for (const ReportField& report : kReports) {
      if (IsWritten(recipe, report, reports)) {
        reports_[report.name] = Tensor(report.dtype, ReportShape(report, dims));
      }
    }
  }

  Outputs views() const {
    Outputs outputs{.y = y_.view()};
    for (const ReportField& report : kReports) {
      if (const auto at = reports_.find(report.name); at != reports_.end()) {
        outputs.*report.view = at->second.view();
      }
    }
    return outputs;
  }
  void MoveInto(TensorFile& file) {
    file.tensors["y"] = std::move(y_);
    for (auto& [name, tensor] : reports_) file.tensors[std::string(name)] = std::move(tensor);
  }

 private:
  static bool IsWritten(const Recipe& recipe, const ReportField& report, bool reports) {
    const Solver solver = recipe.optimizer.solver;
    if (report.view == &Outputs::status) return true;
    if (report.view == &Outputs::iterations) return solver == Solver::kConjugateGradient;
    if (report.view == &Outputs::residual) return CarriesGram(recipe) && solver != Solver::kExact;
    return reports && HasReport(recipe, report);
  }

  Tensor y_;
  std::map<std::string_view, Tensor> reports_;
};

void Run(const ApplyArguments& arguments) {
  Files files("apply");
  files.Reads("--in", arguments.in);
  files.ReadsRecipe("RECIPE", arguments.recipe);
  files.Writes("--out", arguments.out);

  const Recipe recipe = RecipeArgument(arguments.recipe);
  const TensorFile in = ReadSafetensors(arguments.in);
  const LayerFile given = SortTensors(arguments.in, in, recipe);

  const Layer layer = arguments.via == "definition" ? Layer(recipe, kDefinition) : Layer(recipe);
  const bool step = arguments.via == "step";
  const Dims dims = CheckCall(arguments, recipe, given);

  const std::unique_ptr<Executor> own =
      arguments.threads > 0 ? MakeExecutor(arguments.threads) : nullptr;
  Executor& threads = own ? *own : DefaultExecutor();
  const std::int64_t piece =
      step ? 1 : (dims.tokens + arguments.split - 1) / std::max<std::int64_t>(1, arguments.split);
  const std::unique_ptr<Executor> watched =
      layer.plan().engine == kDefinition || MakePlan(layer.recipe(), dims).engine == kDefinition
          ? WatchDefinition(arguments, layer, given, dims, piece, threads)
          : nullptr;
  const CallOptions options{.executor = watched ? watched.get() : &threads,
                            .bfloat16_products = arguments.bfloat16_products};

  TensorFile out;
  State state;
  AddState(given.state, "", out);  // copies: the given state stays as it is for the gradients
  for (auto& [name, tensor] : out.tensors) state.Set(name, std::move(tensor));
  out.tensors.clear();

  ApplyOutputs outputs(recipe, dims, given.inputs.v.dtype(), arguments.reports);
  if (dims.tokens == 0 || piece >= dims.tokens) {
    layer.Forward(given.inputs, state, outputs.views(), options);
  } else {
    RunPieces(layer, given.inputs, {dims.tokens, piece, step}, state, outputs.views(), options);
  }
  if (arguments.gradients) AddGradients(layer, given, given.state, options, out);

  AddFinalState(recipe, state, out);
  outputs.MoveInto(out);
  out.metadata["recipe"] = ToJson(recipe);
  out.metadata["ttr_version"] = Version();
  WriteSafetensors(arguments.out, out);
}

}  // namespace

void AddApply(Command ttr) {
  Command command = ttr.AddCommand(
      "apply", "runs a layer on tensors from a safetensors file",
      "  ttr apply gated_deltanet --in qkv.safetensors --out y.safetensors\n"
      "  ttr apply 'rls{ridge: 1e-2}' --in qkv.safetensors --out y.safetensors --split 4\n"
      "  ttr apply deltanet --in qkv_dy.safetensors --out grads.safetensors --grad\n"
      "Which inputs a layer takes: ttr zoo NAME. Python with safetensors makes such a file:\n"
      "  import numpy as np, safetensors.numpy\n"
      "  q, k, v = np.random.default_rng(0).standard_normal((3, 1, 128, 4, 64), np.float32)"
      "  # B, T, H, D\n"
      "  gates = {'log_decay': -np.ones((1, 128, 4), 'f'), 'step': np.ones((1, 128, 4), 'f')}\n"
      "  safetensors.numpy.save_file({'q': q, 'k': k, 'v': v, **gates}, 'qkv.safetensors')");
  const auto arguments = std::make_shared<ApplyArguments>();
  command.AddOption("RECIPE", arguments->recipe, "a zoo name, name{changes}, a recipe line, @FILE")
      .Required();
  command.AddOption("--in", arguments->in, "inputs by name (q, k, v, ...), and state if any")
      .Required();
  command
      .AddOption(
          "--out", arguments->out,
          "receives y, status, the final state, of solvers that iterate the residual, and of "
          "conjugate_gradient the iterations")
      .Required();
  command
      .AddOption("--via", arguments->via,
                 "engine (the planned one), definition (the literal regression), or step "
                 "(token by token)")
      .ShowDefault()
      .OneOf({"engine", "definition", "step"});
  command
      .AddOption("--split", arguments->split,
                 "cut the sequence into N pieces, each with the state of the one before")
      .ShowDefault()
      .Within(1, std::int64_t{1} << 40);
  command.AddOption("--threads", arguments->threads, "threads (default: all, or TTR_THREADS)")
      .Within(1, 4096);
  command.AddFlag("--grad", arguments->gradients,
                  "also read dy (and dstate) and write dNAME for every input and the state");
  command.AddFlag("--bfloat16-products", arguments->bfloat16_products,
                  "of bfloat16 inputs: products with the memory in bfloat16, where the processor "
                  "has them; faster, off by some 1e-3");
  command.AddFlag("--reports", arguments->reports,
                  "also write what the regression knows beside y: slope (local polynomials), "
                  "leverage (exact least squares, kernel regression), effective_pairs (weighted "
                  "means, local polynomials); by the definition, which is slow");
  command.AddFlag("--quiet", arguments->quiet, "no notes, no progress");
  command.OnRun([arguments] { Run(*arguments); });
}

}  // namespace ttr::tools
