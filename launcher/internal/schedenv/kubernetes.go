package schedenv

import (
	"strconv"
	"strings"
)

// pod is what a pod's host name and /etc/hosts say. If the pod has a subdomain (the name of its
// headless service), the kubelet writes the pod's whole name into /etc/hosts:
// HOST.SUBDOMAIN.NAMESPACE.svc.ZONE
// (https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/).
type pod struct {
	host string
	// domain is the whole name after the host. subdomain and namespace are the first words of
	// domain. All are empty without a subdomain.
	domain, subdomain, namespace string
}

func (m Machine) pod() pod {
	p := pod{host: short(m.Hostname)}
	data, err := m.file("/etc/hosts")
	if err != nil || p.host == "" {
		return p
	}
	for name := range strings.FieldsSeq(string(data)) {
		domain, ok := strings.CutPrefix(name, p.host+".")
		if words := strings.Split(domain, "."); ok && len(words) > 2 && words[2] == "svc" {
			p.domain, p.subdomain, p.namespace = domain, words[0], words[1]
			return p
		}
	}
	return p
}

// indexedJob reads what Kubernetes tells the pods of an Indexed Job, whose host names are JOB-INDEX
// (https://kubernetes.io/docs/tasks/job/job-with-pod-to-pod-communication/). The pods do not learn
// their number. Without a headless service, or in its host's network, a pod cannot reach another
// pod by name, so there is no head. Pods that work alone need no head.
//
// The jobs of a JobSet are Indexed Jobs, with host names JOBSET-REPLICATEDJOB-JOB-INDEX
// (https://jobset.sigs.k8s.io/docs/concepts/); the pods of one job are the nodes. JobSet sets no
// variable, but manifests map its annotation jobset.sigs.k8s.io/restart-attempt to
// JOBSET_RESTART_ATTEMPT.
func indexedJob(m Machine) (*Place, error) {
	if !m.has("JOB_COMPLETION_INDEX") {
		return nil, nil
	}
	r := m.read("Kubernetes (Indexed Job)")
	r.place.Node = r.number("JOB_COMPLETION_INDEX", 0)
	pod := r.pod()
	job, ok := strings.CutSuffix(pod.host, "-"+strconv.Itoa(r.place.Node))
	if ok {
		r.place.Job = jobName(job, pod.namespace)
	}
	if ok && pod.domain != "" {
		r.place.Head, r.place.Port = job+"-0."+pod.domain, port
	}
	if r.has("JOBSET_RESTART_ATTEMPT") {
		r.place.By, r.place.Restarts = "Kubernetes (JobSet)", r.number("JOBSET_RESTART_ATTEMPT", 0)
	}
	return r.done()
}

// leaderWorkerSet reads what LeaderWorkerSet tells the pods of a group
// (https://lws.sigs.k8s.io/docs/reference/). The leader's name, LWS-GROUP.SUBDOMAIN.NAMESPACE,
// tells groups apart.
func leaderWorkerSet(m Machine) (*Place, error) {
	if !m.has("LWS_LEADER_ADDRESS") {
		return nil, nil
	}
	r := m.read("Kubernetes (LeaderWorkerSet)")
	r.place.Head, r.place.Port = r.must("LWS_LEADER_ADDRESS"), port
	r.place.Node, r.place.Nodes = r.number("LWS_WORKER_INDEX", 0), r.number("LWS_GROUP_SIZE", 1)
	r.place.Job = jobName(r.place.Head)
	return r.done()
}
