// Vignettes 1 and 2: least squares. Letters: paper.cc.
#include "experiments/paper/sections.h"

namespace ttr::experiments {
namespace {

constexpr PaperEntry kLeastSquares[] = {
    {.place = "eq. 10, 11",
     .says = "V^T K (K^T K)^-1, of fewer keys than channels the minimum norm",
     .recipe = "rls{ridge: 0}",
     .computed = true,
     .differs = "The name `rls` alone has a ridge of 0.001."},
    {.place = "eq. 12",
     .says = "K^T K taken as I is linear attention",
     .recipe = "linear_attention",
     .identity = "rls{ridge: 1000000000} = linear_attention"},
    {.place = "claim",
     .says = "that is optimal for up to Dk orthonormal keys",
     .recipe = "linear_attention",
     .test = "PaperClaims.LinearAttentionIsLeastSquaresOnOrthonormalKeys"},
    {.place = "claim",
     .says = "without the covariance recall is worse",
     .recipe = "linear_attention",
     .test = "Studies.CapacityOfLeastSquaresIsAboveThatOfLinearAttention",
     .command = "ttr experiment capacity",
     .document = "experiments.md#capacity",
     .differs = "Holds: of 192 random pairs in 64 channels .89, least squares .98."},
    {.place = "eq. 13",
     .says = "|y| <= |q| sum |v| |k| / lambda_min(K^T K)",
     .recipe = "rls{ridge: 0}",
     .test = "Studies.StabilityKeepsTheBound",
     .command = "ttr experiment stability",
     .document = "experiments.md#stability",
     .differs = "Holds, far from tight. It is infinite for fewer keys than channels."},
    {.place = "claim",
     .says = "outputs of linear attention grow with the length",
     .recipe = "linear_attention",
     .command = "ttr experiment stability",
     .document = "experiments.md#stability",
     .differs = "Holds: 4.1 times as long for 4 times the tokens, least squares 0.99 times."},
    {.place = "claim",
     .says = "an output norm restores the scale",
     .recipe = "linear_attention{output_norm: rms}",
     .document = "layers.md#options",
     .differs =
         "Outputs have unit mean square (`rms`) or length (`l2`); training is not compared."},
    {.place = "text",
     .says = "token by token by Woodbury's identity (RLS)",
     .recipe = "rls",
     .command = "ttr experiment stability",
     .document = "least_squares.md#why-the-state-is-not-the-inverse",
     .differs = "ttr keeps K^T K and V^T K: the inverse loses its digits once decays come. The "
                "paper's line means K_{t-1}^T K_{t-1} + k k^T."},
    {.place = "text",
     .says = "in parallel as T linear systems",
     .recipe = "rls",
     .document = "least_squares.md#the-chunk-algorithm",
     .differs = "One factor for up to 64 tokens serves all prefixes that end in them."},
    {.place = "named",
     .says = "intention",
     .recipe = "intention",
     .identity = "intention{ridge: 0.01} = rls{ridge: 0.01}",
     .differs = "Not causal; a ridge of 0.001."},
    {.place = "named",
     .says = "mesa-layer",
     .recipe = "mesa",
     .identity = "mesa{ridge: 0.01} = rls{ridge: 0.01}",
     .differs = "The name is MesaNet's: decays, and a ridge of 0.25 that does not fade."},
    {.place = "text",
     .says = "optimal nonlinear memory: least squares on phi(k)",
     .recipe = "feature_rls{ridge: 0}",
     .computed = true,
     .differs = "The name alone has a ridge of 0.001. phi is 1 + ELU, or any map."},
    {.place = "named",
     .says = "Poggio's polynomial memory",
     .recipe = "feature_rls{features: taylor2, ridge: 0}",
     .computed = true,
     .differs = "All monomials up to degree 2, weighted as in Based. Weights matter to the "
                "minimum norm alone, while keys are fewer than monomials."},
};

constexpr PaperEntry kWeighted[] = {
    {.place = "eq. 14, 15",
     .says = "V^T G K (K^T G K)^-1 under geometric weights",
     .recipe = "weighted_rls{ridge: 0}",
     .computed = true,
     .differs = "The name alone has a ridge of 0.001, which fades like a pair. `importance` "
                "weighs pairs, too; absent it is 1."},
    {.place = "claim",
     .says = "of fewer keys than channels weights do not matter",
     .recipe = "weighted_rls{ridge: 0}",
     .test = "LeastSquares.WeightOfUnderdeterminedPairsIsIrrelevant"},
    {.place = "eq. 16",
     .says = "K^T G K taken as I: M = g M' + v k^T",
     .recipe = "batch_gd{decay: scalar, steps: 1, eta_kind: constant}",
     .computed = true,
     .differs = "This recipe, `mamba2` and that of eq. 4 are one."},
    {.place = "claim",
     .says = "forgetting helps where data change",
     .recipe = "weighted_rls{ridge_kind: constant}",
     .command = "ttr experiment online-regression",
     .document = "experiments.md#online-regression",
     .differs = "Holds: decay .95 has loss .022 in the last half, RLS .122; .073 with the "
                "name's fading ridge."},
    {.place = "text",
     .says = "RLS with forgetting, token by token",
     .recipe = "weighted_rls",
     .command = "ttr experiment stability",
     .document = "least_squares.md#three-ridges",
     .differs = "Where keys leave channels out, `ridge_kind: constant` keeps it well posed."},
};

}  // namespace

std::span<const PaperEntry> PaperLeastSquares() { return kLeastSquares; }
std::span<const PaperEntry> PaperWeighted() { return kWeighted; }

}  // namespace ttr::experiments
