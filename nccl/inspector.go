package nccl

import (
	"github.com/golaunch/golaunch/rankenv"
)

// inspector says where the rules are from: plugins/profiler/inspector/README.md of NVIDIA/nccl.
const inspector = " (NCCL Inspector)"

// Inspector gives the variables by which NCCL's profiler plugin "inspector" writes the bandwidth and the time of collectives to a directory,
// as a file for each GPU that node-exporter's textfile collector reads. The plugin is libnccl-profiler-inspector.so, which NCCL finds as any
// library, and writes in this form since NCCL 2.30.
func Inspector(dir string) []rankenv.Var {
	m := maker{preset: "inspector"}
	m.add("NCCL_PROFILER_PLUGIN", "inspector", "libnccl-profiler-inspector.so"+inspector)
	m.add("NCCL_INSPECTOR_ENABLE", "1", "the plugin does nothing without it"+inspector)
	m.add("NCCL_INSPECTOR_PROM_DUMP", "1", "for Prometheus, rather than as JSON"+inspector)
	m.add("NCCL_INSPECTOR_DUMP_DIR", dir, "--nccl-inspector"+inspector)
	m.add("NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS", "30000000", "the least that it allows for Prometheus"+inspector)
	return m.vars
}
