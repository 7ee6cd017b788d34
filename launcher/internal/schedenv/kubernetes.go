package schedenv

import (
	"strconv"
	"strings"
)

// pod has the facts that a pod's host name and its /etc/hosts contain. If the pod has a subdomain
// (the name of its headless service), the kubelet writes the pod's whole name into /etc/hosts:
// HOST.SUBDOMAIN.NAMESPACE.svc.ZONE
// (https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/).
type pod struct {
	host string
	// domain is the part of the pod's whole name after the host. subdomain and namespace are the
	// first two words of domain. All are empty without a subdomain.
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

// indexedJob reads the variables and host names that Kubernetes gives the pods of an Indexed Job.
// The host names are JOB-INDEX
// (https://kubernetes.io/docs/tasks/job/job-with-pod-to-pod-communication/). Kubernetes does not
// tell the pods how many there are. A pod without a headless service, or in its host's network,
// cannot reach other pods by name, so the place has no Head. Pods that work alone need no head.
//
// The jobs of a JobSet are Indexed Jobs, with host names JOBSET-REPLICATEDJOB-JOB-INDEX
// (https://jobset.sigs.k8s.io/docs/concepts/); the pods of one job are the nodes. JobSet sets no
// variable, but manifests map its annotation jobset.sigs.k8s.io/restart-attempt to
// JOBSET_RESTART_ATTEMPT.
func (r *reader) indexedJob() {
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
}

// leaderWorkerSet reads the variables that LeaderWorkerSet sets in the pods of a group
// (https://lws.sigs.k8s.io/docs/reference/). Each group has another leader's name,
// LWS-GROUP.SUBDOMAIN.NAMESPACE, which therefore names the job.
func (r *reader) leaderWorkerSet() {
	r.place.Head, r.place.Port = r.must("LWS_LEADER_ADDRESS"), port
	r.place.Node, r.place.Nodes = r.number("LWS_WORKER_INDEX", 0), r.number("LWS_GROUP_SIZE", 1)
	r.place.Job = jobName(r.place.Head)
}
