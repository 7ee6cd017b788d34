package manifests

import (
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

const chart = "../dist/chart/golaunch"

// release is the output of Helm for the chart.
type release struct {
	sets    map[string]apps.StatefulSet
	agents  apps.DaemonSet
	page    *apps.Deployment
	monitor *monitoring.PodMonitor
	secrets map[string]core.Secret
	service core.Service
	notes   string
}

func template(t *testing.T, values string) (release, error) {
	t.Helper()
	r := release{sets: map[string]apps.StatefulSet{}, secrets: map[string]core.Secret{}}
	c, err := loader.Load(chart)
	if err != nil {
		t.Fatal(err)
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	options := chartutil.ReleaseOptions{Name: "train", Namespace: "ml", IsInstall: true}
	all, err := chartutil.ToRenderValues(c, given, options, chartutil.DefaultCapabilities)
	if err != nil {
		return r, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return r, err
	}
	for name, file := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			r.notes = file
			continue
		}
		for text := range strings.SplitSeq(file, "\n---\n") {
			if strings.TrimSpace(text) == "" {
				continue
			}
			var kind meta.TypeMeta
			if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, text)
			}
			switch kind.GroupVersionKind().String() {
			case "/v1, Kind=Service":
				r.service = decode[core.Service](t, text)
			case "/v1, Kind=Secret":
				s := decode[core.Secret](t, text)
				r.secrets[s.Name] = s
			case "apps/v1, Kind=StatefulSet":
				s := decode[apps.StatefulSet](t, text)
				r.sets[s.Name] = s
			case "apps/v1, Kind=DaemonSet":
				r.agents = decode[apps.DaemonSet](t, text)
			case "apps/v1, Kind=Deployment":
				r.page = new(decode[apps.Deployment](t, text))
			case "monitoring.coreos.com/v1, Kind=PodMonitor":
				r.monitor = new(decode[monitoring.PodMonitor](t, text))
			default:
				t.Errorf("%s has a %v", name, kind.GroupVersionKind())
			}
		}
	}
	return r, nil
}

// TestChart: the objects of the chart have the API's types, and refer to each other correctly.
func TestChart(t *testing.T) {
	for _, m := range lint.All(chart, map[string]any{"agent": map[string]any{"image": "x"}}, "ml", true).Messages {
		if m.Severity > support.InfoSev {
			t.Errorf("helm lint: %v", m)
		}
	}
	for values, replicas := range map[string]int32{
		"agent: {image: me/train:1}": 1,
		"agent: {image: me/train:1, gpus: 0, numGPUs: 0, args: ['--preload=torch'], hostNetwork: true, env: [{name: A, value: b}], " +
			"nodeSelector: {a: b}, affinity: {nodeAffinity: {}}, volumes: [{name: v, emptyDir: {}}], volumeMounts: [{name: v, mountPath: /v}]}\n" +
			"coordinator: {replicas: 3, nodeSelector: {a: b}, tolerations: [{operator: Exists}]}\n" +
			"token: {existingSecret: mine}\ndashboard: {podMonitor: true}\nimage: {tag: '2'}": 3,
	} {
		r, err := template(t, values)
		if err != nil {
			t.Errorf("%s: %v", values, err)
			continue
		}
		set := r.sets["train-coordinator"]
		if *set.Spec.Replicas != replicas || set.Spec.ServiceName != r.service.Name || r.service.Spec.ClusterIP != core.ClusterIPNone ||
			!r.service.Spec.PublishNotReadyAddresses || r.service.Spec.Ports[0].Port != 29400 {
			t.Errorf("%s: the coordinators cannot be found: %+v %+v", values, set.Spec, r.service.Spec)
		}
		selects(t, r.service.Spec.Selector, set.Spec.Template.Labels)
		selects(t, set.Spec.Selector.MatchLabels, set.Spec.Template.Labels)
		selects(t, r.agents.Spec.Selector.MatchLabels, r.agents.Spec.Template.Labels)
		agent, carrier := r.agents.Spec.Template.Spec.Containers[0], r.agents.Spec.Template.Spec.InitContainers[0]
		if agent.Image != "me/train:1" || carrier.Image != set.Spec.Template.Spec.Containers[0].Image || agent.Command[0] != carrier.Args[1]+"/golaunch" {
			t.Errorf("%s: the agent's golaunch is not the carrier's: %+v %+v", values, agent, carrier)
		}
		if replicas == 3 {
			where := "train-coordinator-0.train-coordinator.ml.svc:29400,train-coordinator-1.train-coordinator.ml.svc:29400,train-coordinator-2.train-coordinator.ml.svc:29400"
			if agent.Args[1] != "--coordinator="+where || set.Spec.Template.Spec.Containers[0].Args[1] != "--peers="+where || carrier.Image != "golaunch:2" {
				t.Errorf("%q %q %s", agent.Args, set.Spec.Template.Spec.Containers[0].Args, carrier.Image)
			}
			if agent.Args[len(agent.Args)-1] != "--preload=torch" || len(agent.Resources.Limits) != 0 || r.monitor == nil {
				t.Errorf("%+v %+v", agent, r.monitor)
			}
			selects(t, r.monitor.Spec.Selector.MatchLabels, r.page.Spec.Template.Labels)
			if _, made := r.secrets["train-token"]; made || secret(agent) != "mine" {
				t.Errorf("the token is that of %s", secret(agent))
			}
		} else if gpus := agent.Resources.Limits["nvidia.com/gpu"]; gpus.Value() != 8 || len(r.secrets["train-token"].Data["token"]) != 64 || secret(agent) != "train-token" {
			t.Errorf("%+v, token %s", agent.Resources, secret(agent))
		}
		if !strings.Contains(r.notes, "kubectl -n ml exec train-coordinator-0 -- golaunch status") {
			t.Error(r.notes)
		}
	}
	for values, want := range map[string]string{
		"":                              "minLength",
		"agent: {image: x, gpus: many}": "/agent/gpus",
		"agent: {image: x}\ncoordinator: {replicas: 2}":              "/coordinator/replicas",
		"agent: {image: x}\ncoordinator: {replicas: 3, storage: ''}": "several coordinators need it",
	} {
		if _, err := template(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", values, err, want)
		}
	}
}

func selects(t *testing.T, selector, of map[string]string) {
	t.Helper()
	if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(labels.Set(of)) {
		t.Errorf("%v does not select %v", selector, of)
	}
}

// secret returns the source of a container's token.
func secret(c core.Container) string {
	for _, v := range c.Env {
		if v.Name == "GOLAUNCH_TOKEN" {
			return v.ValueFrom.SecretKeyRef.Name
		}
	}
	return ""
}
