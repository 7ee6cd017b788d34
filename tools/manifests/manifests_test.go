// Package manifests checks the examples for Kubernetes against the types of its API, and records
// the settings of their pods, so that cmd/golaunch can run them without a cluster:
//
//	go test . -update
package manifests

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	lws "sigs.k8s.io/lws/api/leaderworkerset/v1"
	"sigs.k8s.io/yaml"
)

const (
	examples = "../../examples/kubernetes/"
	// record has the pods of each manifest.
	record = "../../cmd/golaunch/testdata/pods.json"
)

var update = flag.Bool("update", false, "write "+record)

// pod is the pod that a controller and the kubelet make from a template. A variable from a secret
// has the value secret/KEY.
type pod struct {
	Host, Subdomain string
	Env, Args       []string
}

func TestManifests(t *testing.T) {
	pods := map[string][]pod{}
	files, err := filepath.Glob(examples + "*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			if made := render(t, file); len(made) > 0 {
				pods[name] = made
			}
		})
	}
	got, err := json.MarshalIndent(pods, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(record, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(record); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what the manifests say (%v); run go test . -update", record, err)
	}
}

// render returns the pods of the one object in a file that has pods.
func render(t *testing.T, file string) (pods []pod) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	services := map[string]core.Service{}
	for text := range strings.SplitSeq(string(data), "\n---\n") {
		var kind meta.TypeMeta
		if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
			t.Fatal(err)
		}
		switch kind.GroupVersionKind().String() {
		case "/v1, Kind=Service":
			s := decode[core.Service](t, text)
			services[s.Name] = s
		case "batch/v1, Kind=Job":
			j := decode[batch.Job](t, text)
			headless(t, services[j.Spec.Template.Spec.Subdomain], j.Name)
			pods = indexed(t, j.Name, j.Spec.Template.Spec.Subdomain, j.Spec)
		case "jobset.x-k8s.io/v1alpha2, Kind=JobSet":
			s := decode[jobset.JobSet](t, text)
			r := s.Spec.ReplicatedJobs[0]
			pods = indexed(t, s.Name+"-"+r.Name+"-0", s.Name, r.Template.Spec)
		case "leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet":
			pods = group(t, decode[lws.LeaderWorkerSet](t, text))
		case "trainer.kubeflow.org/v1alpha1, Kind=ClusterTrainingRuntime":
			carried(t, decode[trainer.ClusterTrainingRuntime](t, text))
		default:
			t.Errorf("%s has a %v", file, kind.GroupVersionKind())
		}
	}
	return pods
}

// decode refuses fields that the type does not have, and fields that occur twice.
func decode[T any](t *testing.T, text string) (object T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// carried checks that the pods of a runtime get golaunch from its image. cmd/golaunch has the
// settings that a TrainJob then gives them.
func carried(t *testing.T, r trainer.ClusterTrainingRuntime) {
	t.Helper()
	job := r.Spec.Template.Spec.ReplicatedJobs[0]
	if job.Name != "node" || job.Template.Labels["trainer.kubeflow.org/trainjob-ancestor-step"] != "trainer" || r.Spec.MLPolicy.Torch == nil {
		t.Errorf("the trainer does not find the nodes: %+v", r.Spec)
	}
	p := job.Template.Spec.Template.Spec
	from, to := p.InitContainers[0], p.Containers[0]
	if to.Name != "node" || to.Command[0] != from.Args[1]+"/golaunch" || from.VolumeMounts[0].MountPath != from.Args[1] ||
		to.VolumeMounts[0].Name != from.VolumeMounts[0].Name || p.Volumes[0].Name != from.VolumeMounts[0].Name {
		t.Errorf("golaunch does not come into the container: %+v %+v", from, to)
	}
}

// headless checks for a service that publishes the names of a job's pods before they are ready.
func headless(t *testing.T, s core.Service, job string) {
	t.Helper()
	if s.Spec.ClusterIP != core.ClusterIPNone || !s.Spec.PublishNotReadyAddresses || s.Spec.Selector[batch.JobNameLabel] != job {
		t.Errorf("the subdomain is no headless service for the pods of job %s: %+v", job, s.Spec)
	}
}

// indexed are the pods of an Indexed Job, which differ in their index.
func indexed(t *testing.T, name, subdomain string, j batch.JobSpec) (pods []pod) {
	t.Helper()
	if *j.CompletionMode != batch.IndexedCompletion || *j.Completions != *j.Parallelism || j.Template.Spec.RestartPolicy != core.RestartPolicyNever {
		t.Errorf("the pods do not run together: %+v", j)
	}
	if j.BackoffLimitPerIndex == nil || j.MaxFailedIndexes == nil || *j.PodReplacementPolicy != batch.Failed {
		t.Errorf("a pod that is lost takes the others along, or comes again before it is gone: %+v", j)
	}
	c := container(t, j.Template.Spec)
	if want := fmt.Sprintf("--nodes=%d", *j.Completions); !slices.Contains(c.Args, want) {
		t.Errorf("%q has no %s", c.Args, want)
	}
	for _, r := range j.PodFailurePolicy.Rules {
		if r.OnExitCodes != nil && (*r.OnExitCodes.ContainerName != c.Name || !slices.IsSorted(r.OnExitCodes.Values)) {
			t.Errorf("a failure policy is for a container %s, with the codes %v", *r.OnExitCodes.ContainerName, r.OnExitCodes.Values)
		}
	}
	for i := range int(*j.Completions) {
		pods = append(pods, pod{
			Host: fmt.Sprintf("%s-%d", name, i), Subdomain: subdomain, Args: c.Args,
			Env: append(variables(t, c), "JOB_COMPLETION_INDEX="+strconv.Itoa(i)),
		})
	}
	return pods
}

// group are the pods of a LeaderWorkerSet's first group.
func group(t *testing.T, s lws.LeaderWorkerSet) (pods []pod) {
	t.Helper()
	spec := s.Spec.LeaderWorkerTemplate
	c := container(t, spec.WorkerTemplate.Spec)
	for i := range int(*spec.Size) {
		host := s.Name + "-0"
		if i > 0 {
			host += "-" + strconv.Itoa(i)
		}
		pods = append(pods, pod{Host: host, Subdomain: s.Name, Args: c.Args, Env: append(variables(t, c),
			fmt.Sprintf("%s=%s-0.%[2]s.default", lws.LwsLeaderAddress, s.Name),
			fmt.Sprintf("%s=%d", lws.LwsGroupSize, *spec.Size), fmt.Sprintf("%s=%d", lws.LwsWorkerIndex, i),
		)})
	}
	return pods
}

// margin is the time that golaunch needs after the grace period to kill, report and end.
const margin = 10 * time.Second

// container returns the only container of a template, and checks that it ends in time.
func container(t *testing.T, p core.PodSpec) core.Container {
	t.Helper()
	c := p.Containers[0]
	if len(p.Containers) != 1 || !slices.Equal(c.Command, []string{"golaunch"}) {
		t.Errorf("golaunch is not the only container's program: %+v", p.Containers)
	}
	most := time.Duration(*p.TerminationGracePeriodSeconds) * time.Second
	i := slices.IndexFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--grace=") })
	if i < 0 {
		t.Fatalf("%q has no --grace", c.Args)
	}
	if grace, err := time.ParseDuration(strings.TrimPrefix(c.Args[i], "--grace=")); err != nil || grace+margin > most {
		t.Errorf("%s is too long for a pod that has %v (%v)", c.Args[i], most, err)
	}
	for _, m := range c.VolumeMounts {
		if !slices.ContainsFunc(p.Volumes, func(v core.Volume) bool { return v.Name == m.Name }) {
			t.Errorf("there is no volume %s", m.Name)
		}
	}
	return c
}

// variables returns the variables of a template in the first run of a JobSet.
func variables(t *testing.T, c core.Container) (env []string) {
	t.Helper()
	for _, v := range c.Env {
		value := v.Value
		switch from := v.ValueFrom; {
		case from == nil:
		case from.SecretKeyRef != nil:
			value = "secret/" + from.SecretKeyRef.Key
			told(t, fmt.Sprintf("kubectl create secret generic %s --from-literal=%s=", from.SecretKeyRef.Name, from.SecretKeyRef.Key))
		case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.annotations['jobset.sigs.k8s.io/restart-attempt']":
			value = "0"
		default:
			t.Errorf("nothing sets %s: %+v", v.Name, from)
		}
		env = append(env, v.Name+"="+value)
	}
	return env
}

// told checks that the README has the command that makes an object.
func told(t *testing.T, command string) {
	t.Helper()
	readme, err := os.ReadFile(examples + "README.md")
	if err != nil || !strings.Contains(string(readme), command) {
		t.Errorf("the README does not say %q (%v)", command, err)
	}
}

// TestPodOfCapacity checks the example of a node that a cluster asks for. golaunch names the pod.
func TestPodOfCapacity(t *testing.T) {
	text, err := os.ReadFile("../../examples/capacity/pod.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := decode[core.Pod](t, string(text))
	if c := p.Spec.Containers[0]; p.Kind != "Pod" || p.Spec.RestartPolicy != core.RestartPolicyNever || c.Env[0].ValueFrom.SecretKeyRef == nil || !slices.Equal(c.Command, []string{"golaunch"}) {
		t.Errorf("%+v", p)
	}
}
