package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Kubernetes asks for nodes as pods whose names are the tags. It does not use a StatefulSet, which
// can remove only its last pod, because any pod may be the idle one.
type Kubernetes struct {
	kind    string
	options []string
	agent   Agent
	// pod is the manifest.
	pod map[string]any
}

// kindLabel is the label by which golaunch finds the pods of a kind.
const kindLabel = "golaunch-kind"

// maxManifest bounds the file of a pod.
const maxManifest = 256 << 10

// NewKubernetes returns a provider for words: the file of a pod and options of kubectl.
func NewKubernetes(kind string, words []string, a Agent) (Kubernetes, error) {
	p := Kubernetes{kind: kind, options: words[1:], agent: a}
	f, err := os.Open(words[0])
	if err != nil {
		return p, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return p, err
	}
	if len(text) > maxManifest {
		return p, fmt.Errorf("%s has more than %d KiB", words[0], maxManifest>>10)
	}
	if err = yaml.Unmarshal(text, &p.pod); err == nil {
		_, err = p.manifest("")
	}
	if err != nil {
		return p, fmt.Errorf("%s is not a pod as golaunch needs it: %w", words[0], err)
	}
	return p, nil
}

// manifest returns the manifest of the pod of a tag. The pod's first container runs the agent,
// whose arguments are followed by the container's own.
func (p Kubernetes) manifest(tag string) ([]byte, error) {
	pod := copied(p.pod)
	if pod["apiVersion"] != "v1" || pod["kind"] != "Pod" {
		return nil, errors.New("want apiVersion: v1 and kind: Pod")
	}
	spec, _ := pod["spec"].(map[string]any)
	containers, _ := spec["containers"].([]any)
	if len(containers) == 0 {
		return nil, errors.New("spec.containers has none")
	}
	first, _ := containers[0].(map[string]any)
	if first == nil {
		return nil, errors.New("spec.containers[0] has no fields")
	}
	if policy, given := spec["restartPolicy"]; given && policy != "Never" {
		return nil, fmt.Errorf("spec.restartPolicy is %v: want Never, since an agent that has left must not come again", policy)
	}
	spec["restartPolicy"] = "Never"
	command := p.agent.command(tag)
	if _, given := first["command"]; !given {
		first["command"] = []string{"golaunch"}
	}
	own, _ := first["args"].([]any)
	args := []any{}
	for _, word := range command[1:] {
		args = append(args, word)
	}
	first["args"] = append(args, own...)
	meta, _ := pod["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	labels, _ := meta["labels"].(map[string]any)
	if labels == nil {
		labels = map[string]any{}
	}
	delete(meta, "generateName")
	labels[kindLabel], meta["labels"], meta["name"], pod["metadata"] = p.kind, labels, tag, meta
	return json.Marshal(pod)
}

// copied returns a deep copy of a part of the manifest.
func copied(m map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range m {
		out[key] = copyOf(value)
	}
	return out
}

func copyOf(value any) any {
	switch v := value.(type) {
	case map[string]any:
		return copied(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = copyOf(v[i])
		}
		return out
	default:
		return v
	}
}

// Create implements rendezvous.Provider. kubectl creates those pods that do not exist yet, and
// reports an error for the others.
func (p Kubernetes) Create(ctx context.Context, tags []string) error {
	var all []byte
	for _, tag := range tags {
		pod, err := p.manifest(tag)
		if err != nil {
			return err
		}
		all = append(append(all, pod...), '\n')
	}
	line := p.Line("")
	_, err := run(ctx, all, line[0], line[1:]...)
	return err
}

// Line implements Provider.
func (p Kubernetes) Line(string) []string {
	return append([]string{"kubectl", "create", "--filename=-", "--output=name"}, p.options...)
}

// podFields are the fields that List reads of each pod: its name, its phase, the reason for the
// phase, and why it has no machine.
const podFields = `{range .items[*]}{.metadata.name}{"\t"}{.status.phase}{"\t"}{.status.reason}{"\t"}` +
	`{.status.conditions[?(@.type=="PodScheduled")].message}{"\n"}{end}`

// List implements rendezvous.Provider. It omits pods that have ended, because they are no longer
// nodes.
func (p Kubernetes) List(ctx context.Context) (map[string]string, error) {
	out, err := p.kubectl(ctx, "get", "pods", "--selector="+kindLabel+"="+p.kind, "--output=jsonpath="+podFields)
	if err != nil {
		return nil, err
	}
	states := map[string]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 4 {
			return nil, errNonsense("kubectl", []byte(line), errors.New("want 4 fields"))
		}
		name, phase, why := f[0], f[1], slices.DeleteFunc(f[2:], func(text string) bool { return text == "" })
		if phase == "Failed" || phase == "Succeeded" {
			continue
		}
		states[name] = strings.Join(append([]string{"pod " + strings.ToLower(phase)}, why...), ": ")
	}
	return states, nil
}

// Delete implements rendezvous.Provider.
func (p Kubernetes) Delete(ctx context.Context, tags []string) error {
	_, err := p.kubectl(ctx, append([]string{"delete", "pods", "--ignore-not-found", "--wait=false"}, tags...)...)
	return err
}

func (p Kubernetes) kubectl(ctx context.Context, args ...string) ([]byte, error) {
	return run(ctx, nil, "kubectl", append(args, p.options...)...)
}
