package schedenv_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/golaunch/golaunch/launcher/internal/schedenv"
)

// given has the surroundings of a process: its variables as lines NAME=value, its host, and files
// by their path from the root.
type given struct {
	env, host string
	files     map[string]string
}

func (g given) machine() schedenv.Machine {
	env, files := map[string]string{}, fstest.MapFS{}
	for line := range strings.Lines(g.env) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			env[name] = value
		}
	}
	for name, text := range g.files {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	lookup := func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}
	return schedenv.Machine{Env: lookup, Hostname: g.host, FS: files}
}

// and returns the same surroundings with further variables. The line NAME= removes a variable.
func (g given) and(lines ...string) given {
	g.env += "\n" + strings.Join(lines, "\n")
	return g
}

func (g given) on(host string) given {
	g.host = host
	return g
}

type found struct {
	given
	want schedenv.Place
}

// finds checks the place that Find returns. It compares all fields except Sources, which must not
// be empty.
func finds(t *testing.T, table map[string]found) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(table)) {
		t.Run(name, func(t *testing.T) {
			got, err := schedenv.Find(table[name].machine())
			if err != nil || got == nil || len(got.Sources) == 0 {
				t.Fatalf("found %+v, %v", got, err)
			}
			got.Sources = nil
			if !reflect.DeepEqual(*got, table[name].want) {
				t.Errorf("got  %+v\nwant %+v", *got, table[name].want)
			}
		})
	}
}

// refuses checks for an error of one line with the given words. The error is Find's, or the place's
// Several.
func refuses(t *testing.T, table map[string]given) {
	t.Helper()
	for words, g := range table {
		got, err := schedenv.Find(g.machine())
		if err == nil {
			err = got.Several
		}
		if err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
			t.Errorf("found %+v, %v; want an error of one line with %q", got, err, words)
		}
	}
}

func TestNothingAround(t *testing.T) {
	for _, env := range []string{"", "HOME=/root\nRANK=0\nWORLD_SIZE=2\nMASTER_ADDR=n1", "PMI_RANK=0\nPMI_SIZE=1", "PET_NNODES="} {
		if p, err := schedenv.Find(given{env: env, host: "n1"}.machine()); p != nil || err != nil {
			t.Errorf("%q: found %+v, %v", env, p, err)
		}
	}
}

// TestInnermost checks that Find chooses mpirun when it runs in a pod, in the job of a batch
// system, or under Kubeflow.
func TestInnermost(t *testing.T) {
	for around, env := range map[string]string{
		"Slurm":      "SLURM_JOB_ID=7\nSLURM_PROCID=0\nSLURM_NTASKS=1\nSLURM_JOB_NODELIST=n7",
		"PBS":        "PBS_JOBID=12.pbs\nPBS_NODEFILE=/nowhere",
		"LSF":        "LSB_JOBID=12\nLSB_MCPU_HOSTS=n1 1 n2 1",
		"AWS Batch":  "AWS_BATCH_JOB_NODE_INDEX=7",
		"SageMaker":  "SM_RESOURCE_CONFIG={}",
		"Kubeflow":   "PET_NNODES=2",
		"Kubernetes": "JOB_COMPLETION_INDEX=1",
	} {
		p, err := schedenv.Find(openMPI4.and(env).machine())
		if err != nil || p.By != "Open MPI" || p.Head != "10.153.72.131" {
			t.Errorf("mpirun in %s: found %+v, %v", around, p, err)
		}
	}
}

func TestSources(t *testing.T) {
	p, err := schedenv.Find(trainJob.machine())
	want := []string{"PET_NNODES", "PET_NPROC_PER_NODE", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NODE_RANK"}
	if err != nil || !slices.Equal(p.Sources, want) {
		t.Errorf("found %+v, %v; want the sources %v", p, err, want)
	}
}

func TestJobName(t *testing.T) {
	long := strings.Repeat("n", 100)
	one, err := schedenv.Find(batchNode.and("AWS_BATCH_JOB_ID=" + long + "1#1").machine())
	other, err2 := schedenv.Find(batchNode.and("AWS_BATCH_JOB_ID=" + long + "2#1").machine())
	if err != nil || err2 != nil || len(one.Job) != 64 || len(other.Job) != 64 || one.Job == other.Job {
		t.Errorf("found %+v, %v and %+v, %v; want two names of 64 bytes", one, err, other, err2)
	}
}

func TestHere(t *testing.T) {
	m := schedenv.Here()
	t.Setenv("AWS_BATCH_JOB_NODE_INDEX", "0")
	t.Setenv("AWS_BATCH_JOB_MAIN_NODE_INDEX", "0")
	t.Setenv("AWS_BATCH_JOB_NUM_NODES", "2")
	t.Setenv("AWS_BATCH_JOB_ID", "j")
	if v, ok := m.Env("AWS_BATCH_JOB_ID"); !ok || v != "j" || m.Hostname == "" {
		t.Errorf("here is %q, where AWS_BATCH_JOB_ID is %q", m.Hostname, v)
	}
	if _, err := m.FS.Open("etc/hosts"); err != nil {
		t.Error(err)
	}
}

// names are the names of all variables that Find reads.
var names = strings.Fields(`OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_SIZE
	PMIX_NAMESPACE OMPI_MCA_orte_hnp_uri
	OMPI_MCA_orte_local_daemon_uri OMPI_MCA_orte_default_hostfile PMI_RANK PMI_SIZE MPI_LOCALNRANKS PALS_RANKID
	PMI_LOCAL_SIZE PALS_APID
	FLUX_JOB_ID FLUX_TASK_RANK FLUX_JOB_NNODES FLUX_JOB_SIZE PBS_JOBID PBS_NODEFILE PBS_NODENUM PBS_TASKNUM LSB_JOBID LSB_JOBINDEX
	LSF_PM_TASKID LSB_DJOB_HOSTFILE LSB_MCPU_HOSTS JSM_NAMESPACE_RANK JSM_NAMESPACE_SIZE JSM_NAMESPACE_LOCAL_SIZE
	AWS_BATCH_JOB_ID AWS_BATCH_JOB_ATTEMPT AWS_BATCH_JOB_NODE_INDEX AWS_BATCH_JOB_MAIN_NODE_INDEX AWS_BATCH_JOB_NUM_NODES
	AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS SM_RESOURCE_CONFIG TRAINING_JOB_ARN TRAINING_JOB_NAME PET_NNODES PET_NPROC_PER_NODE
	PET_NODE_RANK PET_MASTER_ADDR PET_MASTER_PORT PET_RDZV_ENDPOINT PET_RDZV_ID KUBERNETES_SERVICE_HOST MASTER_ADDR MASTER_PORT RANK
	WORLD_SIZE VC_TASK_INDEX VK_TASK_INDEX LWS_LEADER_ADDRESS LWS_GROUP_SIZE LWS_WORKER_INDEX
	JOB_COMPLETION_INDEX JOBSET_RESTART_ATTEMPT`)

// FuzzFind calls Find with arbitrary variables. The first byte of a line chooses the variable's
// name.
func FuzzFind(f *testing.F) {
	for _, g := range []given{
		openMPI4, openMPI5, hydraRank, fluxTask, pbsJob.and("PBS_NODEFILE=/nodes"), lsfJob, jsrunTask, batchNode, sageMakerHost,
		trainJob, elasticJob,
		volcanoPod, lwsPod, indexedPod,
	} {
		var seed strings.Builder
		for line := range strings.Lines(g.env) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			if i := slices.Index(names, name); i >= 0 {
				seed.WriteString(string(rune(i)) + value + "\n")
			}
		}
		f.Add(seed.String(), g.host, g.files["etc/hosts"])
	}
	f.Fuzz(func(t *testing.T, lines, host, file string) {
		env := map[string]string{}
		for line := range strings.SplitSeq(lines, "\n") {
			if line != "" {
				env[names[int(line[0])%len(names)]] = line[1:]
			}
		}
		data := &fstest.MapFile{Data: []byte(file)}
		files := fstest.MapFS{"etc/hosts": data, "nodes": data, "etc/volcano/worker.host": data}
		lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
		p, err := schedenv.Find(schedenv.Machine{Env: lookup, Hostname: host, FS: files})
		if p == nil {
			return
		}
		if err != nil || len(p.Job) > 64 || p.Node < 0 || p.Nodes > 0 && p.Node >= p.Nodes || p.Each && p.Nodes > 1 && p.Head == "" && p.Ask == nil && p.Several == nil {
			t.Errorf("found %+v, %v", p, err)
		}
	})
}
