package torchrun

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// FTName is the name of the launcher of NVIDIA's resiliency extension. Its command line is the
// command line of torchrun with further flags and other defaults.
const FTName = "ft_launcher"

// ftFlags are the further flags of ft_launcher 0.4.1 to 0.7 as they were given, by their keys in its
// configuration file.
type ftFlags struct {
	config        string
	ignoreMissing bool
	workersStop   float64
	term          float64
	values        map[string]string
}

// ftFlag is a key of the configuration file. With --ft- before it, the key is a flag.
type ftFlag struct {
	key string
	// takes lists the values that the key may have, separated by commas; or "seconds", "number",
	// "bool" or "text".
	takes string
	// instead describes the behaviour of golaunch instead; empty if golaunch honours the key.
	instead string
}

const (
	ownChecks   = "golaunch checks nodes itself (--preflight, golaunch doctor)"
	ownLogs     = "golaunch brings the ranks' logs together itself (--log-dir, golaunch logs)"
	ownAnalysis = "golaunch judges failures itself (golaunch explain)"
	ownProgress = "golaunch ends a job whose failure repeats without progress"
	ownMemory   = "golaunch waits until the GPU memory of an attempt is free, and starts no rank while a process of it lives"
	ownPlaces   = "golaunch orders the nodes itself (--order, --strategy)"
)

// ftTable lists the keys. The flags of the rank monitor come first.
var ftTable = []ftFlag{
	{"initial_rank_heartbeat_timeout", "seconds", ""},
	{"rank_heartbeat_timeout", "seconds", ""},
	{"rank_section_timeouts", "text", ""},
	{"rank_out_of_section_timeout", "seconds", ""},
	{"safety_factor", "number", ""},
	{"num_warmup_iterations", "number", ""},
	{"skip_section_response", "bool", ""},
	{"install_exception_hook", "bool", ""},
	{"restart_policy", "any-failed,min-healthy", ""},
	{"rdzv_impl", "barrier,legacy", "golaunch's coordinator meets the nodes"},
	{"workload_check_interval", "seconds", "nothing is polled"},
	{"restart_check_interval", "seconds", "nothing is polled"},
	{"rank_termination_signal", "text", "ranks that hang get GOLAUNCH_STOP_SIGNAL (TERM), and SIGKILL after --workers-stop-timeout"},
	{"log_level", "text", "golaunch says what happens; GOLAUNCH_QUIET=true does not"},
	{"no_restart_exit_code", "number", "no code forbids a restart; give GOLAUNCH_FAILURE_RULES, or have a rank ask for the end"},
	{"max_no_progress_cycles", "number", ownProgress},
	{"min_progress_iterations", "number", ownProgress},
	{"checkpoint_iteration_file", "text", "golaunch finds checkpoints itself (--checkpoint-dir)"},
	{"node_health_check_interval", "seconds", ownChecks},
	{"node_health_check_endpoint", "text", ownChecks},
	{"enable_nic_monitor", "bool", ownChecks},
	{"enable_nic_healthcheck", "bool", ownChecks},
	{"pci_topo_file", "text", ownChecks},
	{"link_down_path_template", "text", ownChecks},
	{"link_state_path_template", "text", ownChecks},
	{"enable_dist_storage_healthcheck", "bool", ownChecks},
	{"storage_health_check_path", "text", ownChecks},
	{"storage_healthcheck_path", "text", ownChecks},
	{"segment_health_check_dir", "text", ownChecks},
	{"segment", "number", ownPlaces},
	{"use_infra_group_rank", "bool", ownPlaces},
	{"numa_bind_strict", "bool", "golaunch binds ranks itself (--numa-binding)"},
	{"gpu_memory_reclaim_timeout", "seconds", ownMemory},
	{"gpu_memory_tolerance_mb", "number", ownMemory},
	{"gpu_memory_poll_interval", "seconds", ownMemory},
	{"check_remaining_processes", "bool", ownMemory},
	{"per_cycle_applog_prefix", "text", ownLogs},
	{"nvrx_logfile", "text", ownLogs},
	{"enable_log_server", "bool", ownLogs},
	{"log_server_port", "number", ownLogs},
	{"log_aggregator_count", "number", ownLogs},
	{"log_leaf_max_queue_chunks", "number", ownLogs},
	{"log_server_log_prefix", "text", ownLogs},
	{"log_server_graceful_shutdown_timeout", "seconds", ownLogs},
	{"cycle_info_dir", "text", "events.jsonl in the log directory has each attempt"},
	{"cycle_info_job_id", "text", "events.jsonl in the log directory has each attempt"},
	{"attribution_endpoint", "text", ownAnalysis},
	{"attribution_startup_timeout", "seconds", ownAnalysis},
	{"attribution_compute_timeout", "seconds", ownAnalysis},
	{"attribution_llm_api_key_file", "text", ownAnalysis},
	{"attribution_llm_base_url", "text", ownAnalysis},
	{"attribution_llm_model", "text", ownAnalysis},
	{"attribution_analysis_backend", "mcp,lib", ownAnalysis},
	{"attribution_stop_action", "log,no-restart", ownAnalysis},
	{"attribution_log_level", "text", ownAnalysis},
	{"attribution_export_url", "text", ownAnalysis},
}

// flag is the name of the flag for a key.
func (k ftFlag) flag() string { return "ft-" + strings.ReplaceAll(k.key, "_", "-") }

// ftKey finds a key.
func ftKey(key string) (ftFlag, bool) {
	i := slices.IndexFunc(ftTable, func(k ftFlag) bool { return k.key == key })
	if i < 0 {
		return ftFlag{}, false
	}
	return ftTable[i], true
}

// check refuses a value that the key cannot have.
func (k ftFlag) check(value string) error {
	lower := strings.ToLower(strings.TrimSpace(value))
	switch none := isNone(value); k.takes {
	case "text":
		return nil
	case "seconds", "number":
		if _, err := strconv.ParseFloat(lower, 64); err != nil && !none {
			return fmt.Errorf("%q: a number, or none", value)
		}
	case "bool":
		if _, err := parseBool(lower); err != nil {
			return err
		}
	default:
		if all := strings.Split(k.takes, ","); !none && !slices.Contains(all, lower) {
			return fmt.Errorf("%q: %s", value, strings.Join(all, " or "))
		}
	}
	return nil
}

// isNone reports whether a value is one that ft_launcher takes for no value.
func isNone(value string) bool {
	switch strings.ToLower(strings.TrimSpace(value)) {
	case "", "none", "null":
		return true
	}
	return false
}

// parseBool parses the words that ft_launcher takes for true and false.
func parseBool(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "true", "1", "yes":
		return true, nil
	case "false", "0", "no", "none", "null", "":
		return false, nil
	}
	return false, fmt.Errorf("%q: true or false", text)
}

// declareFT adds ft_launcher's flags to torchrun's, with its defaults.
func declareFT(f *pflag.FlagSet, t *ftFlags) {
	t.values = map[string]string{}
	f.StringVar(&t.config, "ft-cfg-path", "", "YAML `file` with a mapping fault_tolerance, whose keys are those of the flags --ft-*")
	f.BoolVar(&t.ignoreMissing, "ft-ignore-missing-cfg", false, "start without that file, and without flags --ft-*")
	f.Float64Var(&t.workersStop, "workers-stop-timeout", 15, "`seconds` that a rank may take to end after SIGTERM")
	f.Float64Var(&t.term, "term-timeout", 1800, "not honoured: --workers-stop-timeout is for every stop")
	for _, k := range ftTable {
		usage := k.instead
		if usage == "" {
			usage = "`" + k.takes + "`, for the rank monitor (docs/ft-launcher.md)"
		}
		f.Var(ftValue{k, t.values}, k.flag(), usage)
	}
	for name, value := range map[string]string{"rdzv-backend": "c10d", "monitor-interval": "0.3"} {
		flag := f.Lookup(name)
		flag.DefValue = value
		if err := flag.Value.Set(value); err != nil {
			panic(err) // the value is a constant
		}
	}
}

// ftValue is the value of a flag for a key.
type ftValue struct {
	ftFlag
	values map[string]string
}

func (v ftValue) String() string { return v.values[v.key] }
func (v ftValue) Type() string   { return "string" }

func (v ftValue) Set(text string) error {
	if err := v.check(text); err != nil {
		return err
	}
	v.values[v.key] = text
	return nil
}

// oldFTNames are names of flags that ft_launcher 0.4.1 had.
var oldFTNames = map[string]string{
	"fault-tol-cfg-path": "ft-cfg-path", "ignore-missing-fault-tol-cfg": "ft-ignore-missing-cfg", "restart-policy": "ft-restart-policy",
}

// abbreviatedFT is like abbreviated, but knows old names too.
func abbreviatedFT(f *pflag.FlagSet, name string) pflag.NormalizedName {
	name = strings.ReplaceAll(name, "_", "-")
	if key, ok := strings.CutPrefix(name, "ft-param-"); ok {
		name = "ft-" + key
	}
	if today, ok := oldFTNames[name]; ok {
		name = today
	}
	return abbreviated(f, name)
}
