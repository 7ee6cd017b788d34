package failurebundle

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/internal/host/lazyregexp"
)

// known are the variables whose values may be seen; * stands for any end of a name. They configure
// ranks, torch, NCCL, libfabric, CUDA, Slurm and the like. Users share bundles, so a bundle has
// only the names of all other variables.
var known = strings.Fields(`
	RANK LOCAL_RANK LOCAL_WORLD_SIZE WORLD_SIZE GROUP_* ROLE_* NODE_RANK NNODES MASTER_ADDR MASTER_PORT
	TORCH_* TORCHELASTIC_* TORCHINDUCTOR_* TORCHDYNAMO_* PYTORCH_* AOT_* TRITON_* C10D_*
	NCCL_* RCCL_* FI_* UCX_* UCC_* GLOO_* TP_* OFI_* EFA_* RDMAV_* MLX5_* IBV_* NVSHMEM_*
	CUDA_* CUBLAS_* CUDNN_* NVIDIA_* NVTE_* HIP_* HSA_* ROCR_* ROCM_* GPU_* XLA_* JAX_* TF_*
	OMP_* KMP_* GOMP_* MKL_* OPENBLAS_* NUMEXPR_* BLIS_* MALLOC_* LD_*
	SLURM_* FLUX_* PBS_* LSB_* KUBERNETES_SERVICE_* GOLAUNCH_* DS_* DEEPSPEED_* ACCELERATE_* MEGATRON_* NEMO_* TOKENIZERS_PARALLELISM
	HF_HOME HF_HUB_OFFLINE HF_DATASETS_* TRANSFORMERS_*
	PYTHON* VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV
	PATH HOME USER LOGNAME SHELL PWD OLDPWD HOSTNAME TMPDIR TERM TZ LANG LC_* SHLVL USE_LIBUV _
`)

// secret matches names whose values must not be seen, although known matches them too.
var secret = lazyregexp.New(`(?i)token($|[^i])|secret|passw|pwd.+|key|credential|auth|cookie|jwt`)

// open reports whether the value of a variable may be seen.
func open(name string) bool {
	return slices.ContainsFunc(known, func(pattern string) bool {
		begin, more := strings.CutSuffix(pattern, "*")
		return name == pattern || more && strings.HasPrefix(name, begin)
	}) && !secret.Get().MatchString(name)
}

// login matches a name and a password in a URL.
var login = lazyregexp.New(`://[^/\s:@]+:[^/\s@]+@`)

const masked = "***"

// shortest is the length of the shortest value that is masked everywhere. Shorter values are common
// words.
const shortest = 8

// secrets are values that are masked everywhere.
type secrets []string

// learn adds the values of an environment that must not be seen. It omits harmless values: paths,
// and parts of values that may be seen.
func (s *secrets) learn(env []string) {
	var seen []string
	for _, pair := range env {
		if name, value, _ := strings.Cut(pair, "="); open(name) {
			seen = append(seen, value)
		}
	}
	harmless := func(value string) bool {
		return strings.HasPrefix(value, "/") || slices.ContainsFunc(seen, func(open string) bool { return strings.Contains(open, value) })
	}
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		if open(name) || len(value) < shortest || slices.Contains(*s, value) || !secret.Get().MatchString(name) && harmless(value) {
			continue
		}
		*s = append(*s, value)
	}
}

// mask returns a function that masks the secrets.
func (s secrets) mask() func(text []byte) []byte {
	longest := slices.SortedFunc(slices.Values(s), func(a, b string) int { return cmp.Compare(len(b), len(a)) }) // one secret may be part of another
	var pairs []string
	for _, value := range longest {
		pairs = append(pairs, value, masked)
	}
	hide := strings.NewReplacer(pairs...)
	return func(text []byte) []byte {
		if !bytes.Contains(text, []byte("://")) && len(s) == 0 {
			return text
		}
		return login.Get().ReplaceAll([]byte(hide.Replace(string(text))), []byte("://"+masked+"@"))
	}
}

// variable returns NAME=value. It masks the value if the value must not be seen.
func variable(pair string) string {
	if name, _, _ := strings.Cut(pair, "="); !open(name) {
		return name + "=" + masked
	}
	return pair
}
