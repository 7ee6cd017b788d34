package schedenv

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/internal/host/hostlist"
)

// openMPI reads the variables that mpirun of Open MPI 4 and 5 sets for each process
// (https://docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html). Open MPI does not tell
// rank 0's host, but mpirun's. In a job script these are the same host.
func (r *reader) openMPI() {
	r.ranks("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "mpirun --map-by ppr:1:node")
	r.place.Job = jobName("mpi", r.must("PMIX_NAMESPACE"))
	r.inOrder(r.allocated())
	if r.place.Nodes > 1 && r.place.Head == "" && r.place.Several == nil {
		r.mpirun()
	}
}

// hydra reads the variables of hydra, the process manager of MPICH, MVAPICH and Intel MPI.
// MPI_LOCALNRANKS shows that it is hydra, because Slurm and Flux set PMI_RANK too. hydra names no
// host and no job, so the batch system around it must name both.
func (r *reader) hydra() {
	r.ranks("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "mpiexec -ppn 1")
	r.inOrder(r.allocated())
	if id := r.allocation(); id != "" {
		r.place.Job = jobName("mpi", id)
	}
}

// pals reads the variables that mpiexec of HPE Cray systems sets (mpiexec(1) of the HPE Cray
// Programming Environment).
func (r *reader) pals() {
	r.ranks("PALS_RANKID", "PMI_SIZE", "PMI_LOCAL_SIZE", "mpiexec --ppn 1")
	r.inOrder(r.allocated())
	r.place.Job = jobName("mpi", r.allocation(), r.text("PALS_APID"))
}

// ranks makes each process of an MPI job a node. This needs that each process is alone on its host;
// otherwise ranks sets Several.
func (r *reader) ranks(rank, size, local, hint string) {
	r.place.Node, r.place.Nodes = r.number(rank, 0), r.number(size, 1)
	if n := r.number(local, 1); n > 1 {
		r.several(r.place.Node, "%s is %d: start one golaunch per node (%s), or --nodes 1 for a job of each", local, n, hint)
	}
}

// inOrder takes hosts as the hosts of the ranks, in order, if their number is right and this
// process's host is at the position of its rank. So rank 0 checks the first host, which is the head
// of all other ranks. If another host is first, rank 0 has no head from these hosts, and the job
// ends if nothing else names one.
func (r *reader) inOrder(hosts []string) {
	p := &r.place
	if len(hosts) == p.Nodes && position(hosts, r.Hostname) == p.Node {
		p.Names, p.Name, p.Head = hosts, hosts[p.Node], hosts[0]
	}
}

// allocated returns the hosts on which mpirun may start processes, in order: the hosts of the batch
// job, or else of a host file; nil if unknown.
func (r *reader) allocated() []string {
	if hosts, err := hostlist.Expand(r.text("SLURM_JOB_NODELIST")); err == nil && len(hosts) > 0 {
		return hosts
	}
	for name := range strings.FieldsSeq("PBS_NODEFILE LSB_DJOB_HOSTFILE " +
		"OMPI_MCA_orte_default_hostfile PRTE_MCA_prte_default_hostfile") {
		if hosts, err := r.hosts(r.text(name)); err == nil && len(hosts) > 0 {
			return hosts
		}
	}
	return nil
}

// allocation returns the ID of the batch job in which mpirun runs.
func (r *reader) allocation() string {
	for _, name := range []string{"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"} {
		if id := r.text(name); id != "" {
			return id
		}
	}
	return ""
}

// mpirun sets Head to the host on which mpirun runs. It fails on rank 0 if mpirun runs on another
// host. Open MPI 4 tells the addresses of mpirun's daemon. The namespace of Open MPI 5 begins with
// the tool, the host and the pid of mpirun: prterun-HOST-PID@1 (PRRTE, plm_base_jobid.c).
func (r *reader) mpirun() {
	daemon, own := r.text("OMPI_MCA_orte_hnp_uri"), r.text("OMPI_MCA_orte_local_daemon_uri")
	here := daemon == own
	switch {
	case daemon != "" && here:
		r.place.Head = r.Hostname
	case daemon != "":
		r.place.Head = reachable(addresses(daemon), addresses(own))
	default:
		_, rest, _ := strings.Cut(r.text("PMIX_NAMESPACE"), "-")
		r.place.Head = rest[:max(0, strings.LastIndex(rest, "-"))]
		here = position([]string{r.place.Head}, r.Hostname) == 0
	}
	if r.place.Node == 0 && !here {
		r.fail("mpirun runs on another host than rank 0, %s: start mpirun there, or give --rendezvous %s:PORT", r.Hostname, r.Hostname)
	}
}

// addresses returns the addresses in a daemon's contact, such as
// "1294532608.0;tcp://192.0.2.2,10.0.0.2:32771;tcp6://[fd00::2]:42797".
func addresses(contact string) []string {
	var all []string
	for _, part := range strings.Split(contact, ";")[1:] {
		_, hosts, _ := strings.Cut(part, "://")
		for host := range strings.SplitSeq(hosts[:max(0, strings.LastIndex(hosts, ":"))], ",") {
			if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil && !a.IsLoopback() {
				all = append(all, a.String())
			}
		}
	}
	return all
}

// reachable returns the first address of a daemon that this node does not have itself. An address
// that both nodes have belongs to a bridge on each, such as Docker's, and leads nowhere. If all
// addresses are equal, the daemon is on this host, and any address will do.
func reachable(daemon, own []string) string {
	for _, a := range daemon {
		if slices.Equal(daemon, own) || !slices.Contains(own, a) {
			return a
		}
	}
	return ""
}
