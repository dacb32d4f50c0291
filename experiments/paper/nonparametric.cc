// Vignette 4: nonparametric regression. Letters: paper.cc.
#include "experiments/paper/sections.h"

namespace ttr::experiments {
namespace {

constexpr PaperEntry kNonparametric[] = {
    {.place = "eq. 42-44",
     .says = "V^T k(K, K)^-1 k(K, q), k = exp(k . k' / sqrt(Dk))",
     .recipe = "kernel_ridge{ridge: 0}",
     .computed = true,
     .document = "kernel_regression.md",
     .differs = "The name alone has a ridge of 0.001."},
    {.place = "eq. 45-47",
     .says = "k(K, K) taken as I: unnormalised softmax",
     .recipe = "kernel_smoother",
     .computed = true,
     .identity = "kernel_ridge{ridge: 1000000000} = kernel_smoother"},
    {.place = "eq. 20-23",
     .says = "the same descent in the kernel's space: from eq. 45-47 to eq. 42-44",
     .recipe = "kernel_gd{steps: 2000, eta: 1.5, ridge: 1}",
     .identity = "kernel_gd{steps: 2000, eta: 1.5, ridge: 1} = kernel_ridge{ridge: 1}",
     .test = "KernelDescent.IsTheRecursionOfItsCoefficients",
     .document = "kernel_regression.md#steps-towards-it",
     .differs = "Not in the paper. One step of size 1 is `kernel_smoother`. No engine has it: the "
                "definition runs it, `ttr.torch.portable` with gradients."},
    {.place = "claim",
     .says = "unnormalised softmax is unstable to train",
     .recipe = "kernel_smoother",
     .command = "python -m ttr.experiments learn --quick --methods softmax,kernel_smoother",
     .document = "models.md#what-layers-learn",
     .differs =
         "In quick runs of one seed no number was lost: both recall 8 pairs (1.000); 4 pairs at "
         "twice the rate softmax alone (1.000, this .571); in-context regression .129 and "
         ".175 (2026-11-28)."},
    {.place = "eq. 48-50",
     .says = "p = 0 under s = exp(-|k - q|^2 / B): Nadaraya-Watson",
     .recipe = "nadaraya_watson{bandwidth: 16}",
     .computed = true,
     .differs = "The name alone has B = 1. Eq. 50 means R^Dv."},
    {.place = "eq. 51",
     .says = "unit q and k, B = 2 sqrt(Dk): softmax with QKNorm",
     .recipe = "softmax{normalise_qk: true}",
     .computed = true,
     .identity = "softmax{normalise_qk: true} = nadaraya_watson{bandwidth: 5.656854249492381, "
                 "normalise_qk: true}",
     .differs = "Length 1 but for 1e-6 under the root. `softmax` alone normalises nothing, and is "
                "no function of the distance."},
    {.place = "text",
     .says = "softmax keeps all pairs: its memory grows with the length",
     .recipe = "softmax",
     .command = "ttr plan softmax",
     .differs = "`kernel_rls` keeps a budget of keys."},
    {.place = "eq. 52, 53",
     .says = "p = 1: V^T W X (X^T W X)^-1, s of the distance",
     .recipe = "local_linear{kernel: gaussian, bandwidth: 16, ridge: 0}",
     .computed = true,
     .document = "local_polynomial.md",
     .differs = "`local_linear` alone weighs by exp(k . q / sqrt(Dk)), with a ridge of 0.01 on "
                "slopes. Before Dk + 1 pairs the paper's inverse does not exist: slopes are "
                "the smallest, and `status` is 1."},
    {.place = "eq. 52, 53",
     .says = "the same of unit q and k, B = 2 sqrt(Dk)",
     .recipe = "local_linear{normalise_qk: true, ridge: 0}",
     .computed = true,
     .identity = "local_linear{normalise_qk: true, ridge: 0} = local_linear{kernel: gaussian, "
                 "bandwidth: 5.656854249492381, normalise_qk: true, ridge: 0}",
     .differs = "What is unit has 1e-6 under the root."},
    {.place = "eq. 54",
     .says = "mean value less slope times mean offset",
     .recipe = "local_linear{kernel: gaussian, bandwidth: 16, ridge: 0}",
     .computed = true,
     .document = "local_polynomial.md#without-the-constant",
     .differs = "The engine works by this form."},
    {.place = "eq. 48, 49",
     .says = "p = 2",
     .recipe = "local_quadratic{kernel: gaussian, bandwidth: 16, ridge: 0}",
     .computed = true,
     .differs = "Monomials, each mixed one once, for the multilinear maps: the same functions. "
                "`local_cubic` is p = 3."},
    {.place = "limit",
     .says = "slopes of 0 leave p = 0",
     .recipe = "local_linear{ridge: 1e12}",
     .identity = "local_linear{ridge: 1e12} = softmax"},
    {.place = "claim",
     .says = "p = 1 costs O(T^2 Dk) space or more, and is impractical",
     .recipe = "local_linear",
     .test = "PaperClaims.LocalLinearAttentionNeedsNoRoomOfItsOwnForMoreTokens",
     .document = "local_polynomial.md#what-it-costs",
     .differs = "No array of the engine grows with T^2 or T Dk^2; the time does as it says."},
};

}  // namespace

std::span<const PaperEntry> PaperNonparametric() { return kNonparametric; }

}  // namespace ttr::experiments
