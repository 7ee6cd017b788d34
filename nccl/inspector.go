package nccl

import (
	"github.com/golaunch/golaunch/rankenv"
)

// inspector names the source of the rules below: plugins/profiler/inspector/README.md of
// NVIDIA/nccl.
const inspector = " (NCCL Inspector)"

// Inspector returns the variables that make NCCL's profiler plugin "inspector" write the bandwidth
// and time of collectives to a directory, as a file per GPU for node-exporter's textfile collector.
// The plugin, libnccl-profiler-inspector.so, must be where NCCL finds libraries. It has this format
// since NCCL 2.30.
func Inspector(dir string) []rankenv.Var {
	m := maker{preset: "inspector"}
	m.add("NCCL_PROFILER_PLUGIN", "inspector", "libnccl-profiler-inspector.so"+inspector)
	m.add("NCCL_INSPECTOR_ENABLE", "1", "the plugin does nothing without it"+inspector)
	m.add("NCCL_INSPECTOR_PROM_DUMP", "1", "for Prometheus, rather than as JSON"+inspector)
	m.add("NCCL_INSPECTOR_DUMP_DIR", dir, "--nccl-inspector"+inspector)
	m.add("NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS", "30000000", "the least that it allows for Prometheus"+inspector)
	return m.vars
}
