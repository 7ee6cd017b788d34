package slurmtest

import (
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// configure writes the cluster's files.
func (c *Cluster) configure(o Options) {
	c.t.Helper()
	key := make([]byte, 128)
	rand.Read(key)
	c.write("munge.key", string(key))
	c.write("slurm.conf", c.slurmConf(o))
	c.write("gres.conf", c.gresConf(o))
	c.write("topology.conf", o.Topology)
	var hosts strings.Builder
	fmt.Fprintf(&hosts, "127.0.0.1 localhost\n%v head\n", c.Head.Addr)
	for _, n := range c.Nodes {
		fmt.Fprintf(&hosts, "%v %s\n", n.Addr, n.Name)
	}
	c.write("hosts", hosts.String())
}

func (c *Cluster) write(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(c.file(name), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// slurmConf is for a small and fast cluster: root runs everything, there is no accounting, and jobs
// start and end at once.
func (c *Cluster) slurmConf(o Options) string {
	conf := map[string]string{
		"ClusterName":          "test",
		"SlurmctldHost":        fmt.Sprintf("head(%v)", c.Head.Addr),
		"SlurmUser":            "root",
		"StateSaveLocation":    c.file("state"),
		"SlurmdSpoolDir":       c.file("%n"),
		"SlurmctldPidFile":     c.file("slurmctld.pid"),
		"SlurmdPidFile":        c.file("%n.pid"),
		"ProctrackType":        "proctrack/linuxproc",
		"TaskPlugin":           "task/none",
		"MpiDefault":           "none",
		"SelectType":           "select/cons_tres",
		"SelectTypeParameters": "CR_CPU",
		"SlurmdParameters":     "config_overrides", // the nodes share the machine's CPUs
		"SchedulerType":        "sched/builtin",
		"SchedulerParameters":  "batch_sched_delay=0,sched_interval=1",
		"ReturnToService":      "2",
		"KillWait":             "5", // seconds from SIGTERM to SIGKILL
		"MailProg":             "/bin/true",
		"GresTypes":            "gpu",
		// cred_expire is short, because a requeued job waits for its old credential to expire. It
		// is in seconds. Slurm takes a value below 5 for the default of 120.
		"AuthInfo": "cred_expire=5,socket=" + c.file("munge.socket"),
	}
	maps.Copy(conf, o.Config)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(conf)) {
		fmt.Fprintf(&text, "%s=%s\n", name, conf[name])
	}
	for _, n := range c.Nodes {
		fmt.Fprintf(&text, "NodeName=%s NodeAddr=%v CPUs=%d Gres=gpu:%d\n", n.Name, n.Addr, o.CPUs, o.GPUs)
	}
	text.WriteString("PartitionName=all Nodes=ALL Default=YES\n")
	return text.String()
}

// gresConf makes the GPUs: Slurm reads an index from a file's name, and wants the file to be a
// device.
func (c *Cluster) gresConf(o Options) string {
	c.t.Helper()
	var text strings.Builder
	text.WriteString("AutoDetect=off\n")
	for i := range o.GPUs {
		gpu := c.file(fmt.Sprintf("gpu%d", i))
		if err := unix.Mknod(gpu, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
			c.t.Fatalf("make the device %s: %v", gpu, err)
		}
		fmt.Fprintf(&text, "Name=gpu File=%s\n", gpu)
	}
	return text.String()
}

// tail is the number of bytes of each log that a failed test shows.
const tail = 8 << 10

// remove shows the logs of a failed test and removes the cluster's files.
func (c *Cluster) remove() {
	logs, _ := filepath.Glob(c.file("*.log"))
	for _, file := range logs {
		text, err := os.ReadFile(file)
		if c.t.Failed() {
			c.t.Logf("%s (%v):\n%s", filepath.Base(file), err, text[max(0, len(text)-tail):])
		}
	}
	if err := os.RemoveAll(c.dir); err != nil {
		c.t.Errorf("remove the cluster's files: %v", err)
	}
}
