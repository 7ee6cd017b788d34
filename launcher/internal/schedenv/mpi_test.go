package schedenv_test

import (
	"testing"

	"github.com/golaunch/golaunch/launcher/internal/schedenv"
)

// openMPI4 has the variables that mpirun 4.1.4 sets on the second of two hosts. Docker has given
// both hosts a bridge with the same address. The contacts are from issues of
// https://github.com/open-mpi/ompi.
var openMPI4 = given{host: "n2", env: `OMPI_COMM_WORLD_RANK=1
	OMPI_COMM_WORLD_SIZE=2
	OMPI_COMM_WORLD_LOCAL_RANK=0
	OMPI_COMM_WORLD_LOCAL_SIZE=1
	OMPI_COMM_WORLD_NODE_RANK=0
	OMPI_MCA_ess_base_jobid=1294532609
	OMPI_MCA_orte_hnp_uri=1294532608.0;tcp://172.17.0.1,10.153.72.131:10000;tcp6://[fd00::2]:42797
	OMPI_MCA_orte_local_daemon_uri=1294532608.1;tcp://172.17.0.1,10.153.72.238:10000;tcp6://[fd00::3]:42797
	OMPI_MCA_orte_num_nodes=2
	PMIX_NAMESPACE=1294532609
	PMIX_RANK=1
	PMIX_HOSTNAME=n2`}

// openMPI5 has the variables of Open MPI 5, which PRRTE sets
// (https://docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html, plm_base_jobid.c of
// PRRTE).
var openMPI5 = given{host: "f5-n17.cluster", env: `OMPI_COMM_WORLD_RANK=1
	OMPI_COMM_WORLD_SIZE=2
	OMPI_COMM_WORLD_LOCAL_SIZE=1
	PMIX_NAMESPACE=prterun-f5-n18-3903919@1
	PMIX_SERVER_URI41=prterun-f5-n18-3903919@0.1;tcp4://10.20.160.172:57983
	PMIX_RANK=1`}

func TestOpenMPI(t *testing.T) {
	four := schedenv.Place{By: "Open MPI", Job: "mpi-1294532609", Nodes: 2, Node: 1, Head: "10.153.72.131", Each: true}
	first := four
	first.Node, first.Head = 0, "n1"
	alone := four
	alone.Nodes, alone.Node, alone.Head = 1, 0, ""
	listed := four
	listed.Names, listed.Name, listed.Head = []string{"n1", "n2"}, "n2", "n1"
	shared := four
	shared.Head = "10.153.72.238"
	five := schedenv.Place{By: "Open MPI", Job: "mpi-prterun-f5-n18-3903919_1", Nodes: 2, Node: 1, Head: "f5-n18", Each: true}
	five0 := five
	five0.Node = 0
	hosts := openMPI4.and("OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile")
	hosts.files = map[string]string{"etc/mpi/hostfile": "# two\nn1 slots=1\nn2 slots=1\n"}
	finds(t, map[string]found{
		"4": {openMPI4, four},
		"4 on mpirun's host": {openMPI4.on("n1").and("OMPI_COMM_WORLD_RANK=0",
			"OMPI_MCA_orte_local_daemon_uri=1294532608.0;tcp://172.17.0.1,10.153.72.131:10000;tcp6://[fd00::2]:42797"), first},
		"4 and two daemons on a host": {openMPI4.and("OMPI_MCA_orte_hnp_uri=1.0;tcp://10.153.72.238:10000",
			"OMPI_MCA_orte_local_daemon_uri=1.1;tcp://10.153.72.238:10001"), shared},
		"one process":            {openMPI4.and("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"), alone},
		"a host file":            {hosts, listed},
		"a host file of others":  {hosts.on("n7"), four},
		"5":                      {openMPI5, five},
		"5 on mpirun's own host": {openMPI5.on("f5-n18.cluster").and("OMPI_COMM_WORLD_RANK=0"), five0},
	})
	refuses(t, map[string]given{
		"SIZE is 8: start one golaunch per node (mpirun --map-by ppr:1:node)": openMPI4.and("OMPI_COMM_WORLD_LOCAL_SIZE=8"),
		"mpirun runs on another host than rank 0, n2":                         openMPI4.and("OMPI_COMM_WORLD_RANK=0"),
		"than rank 0, f5-n17.cluster":                                         openMPI5.and("OMPI_COMM_WORLD_RANK=0"),
		"node 2 of only 2":                                                    openMPI4.and("OMPI_COMM_WORLD_RANK=2"),
		`OMPI_COMM_WORLD_SIZE is "two", not a number`:                         openMPI4.and("OMPI_COMM_WORLD_SIZE=two"),
		"nothing says where":                                                  openMPI4.and("OMPI_MCA_orte_hnp_uri=1.0;tcp://127.0.0.1:1;tcp:///x;u"),
		"PMIX_NAMESPACE is not set":                                           openMPI4.and("PMIX_NAMESPACE="),
		"Open MPI: nothing says where node 0 is":                              openMPI4.and("OMPI_MCA_orte_hnp_uri="),
		"OMPI_COMM_WORLD_SIZE is \"99999999\", not":                           openMPI4.and("OMPI_COMM_WORLD_SIZE=99999999"),
		"OMPI_COMM_WORLD_LOCAL_SIZE is not set: pass it on":                   openMPI4.and("OMPI_COMM_WORLD_LOCAL_SIZE="),
	})
}

// hydraRank has the variables that mpiexec.hydra of MPICH 4.0.2 sets.
var hydraRank = given{host: "n2", env: `HYDI_CONTROL_FD=7
	MPIR_CVAR_CH3_INTERFACE_HOSTNAME=n2
	MPI_LOCALNRANKS=1
	MPI_LOCALRANKID=0
	PMI_FD=6
	PMI_RANK=1
	PMI_SIZE=2`}

func TestHydra(t *testing.T) {
	inPBS := hydraRank.and("PBS_JOBID=314827.pbs1", "PBS_NODEFILE=/var/spool/pbs/aux/314827.pbs1")
	inPBS.files = map[string]string{"var/spool/pbs/aux/314827.pbs1": "n1.cluster\nn1.cluster\nn2.cluster\nn2.cluster\n"}
	want := schedenv.Place{
		By: "MPI's hydra", Job: "mpi-314827.pbs1", Nodes: 2, Node: 1, Each: true,
		Names: []string{"n1.cluster", "n2.cluster"}, Name: "n2.cluster", Head: "n1.cluster",
	}
	inSlurm := want
	inSlurm.Job, inSlurm.Names, inSlurm.Name, inSlurm.Head = "mpi-7", []string{"n1", "n2"}, "n2", "n1"
	finds(t, map[string]found{
		"in PBS":      {inPBS, want},
		"in Slurm":    {hydraRank.and("SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_PROCID=1"), inSlurm},
		"one process": {hydraRank.and("PMI_RANK=0", "PMI_SIZE=1"), schedenv.Place{By: "MPI's hydra", Nodes: 1, Each: true}},
	})
	refuses(t, map[string]given{
		"give --rendezvous HOST:PORT": hydraRank,
		"nothing says where node 0":   inPBS.on("n1"),
		"mpiexec -ppn 1":              hydraRank.and("MPI_LOCALNRANKS=2"),
	})
}

// TestPALS uses the variables of mpiexec on Cray systems
// (https://docs.alcf.anl.gov/polaris/running-jobs/).
func TestPALS(t *testing.T) {
	g := given{host: "x3004c0s7b1n0", env: `PALS_RANKID=1
	PALS_NODEID=1
	PALS_LOCAL_RANKID=0
	PALS_APID=0b4f8a61-8a5e-4ae1-a1c9-5b2d0cf4ad02
	PMI_RANK=1
	PMI_SIZE=2
	PMI_LOCAL_RANK=0
	PMI_LOCAL_SIZE=1
	PBS_JOBID=20.polaris
	PBS_NODEFILE=/var/spool/pbs/aux/20.polaris`}
	g.files = map[string]string{"var/spool/pbs/aux/20.polaris": "x3004c0s7b0n0.hsn\nx3004c0s7b1n0.hsn\n"}
	finds(t, map[string]found{"two nodes": {g, schedenv.Place{
		By: "HPE's PALS", Job: "mpi-20.polaris-0b4f8a61-8a5e-4ae1-a1c9-5b2d0cf4ad02",
		Nodes: 2, Node: 1, Each: true, Names: []string{"x3004c0s7b0n0.hsn", "x3004c0s7b1n0.hsn"}, Name: "x3004c0s7b1n0.hsn",
		Head: "x3004c0s7b0n0.hsn",
	}}})
	refuses(t, map[string]given{"mpiexec --ppn 1": g.and("PMI_LOCAL_SIZE=4")})
}
