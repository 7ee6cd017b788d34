package nccl_test

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing/fstest"
)

const (
	active = "4: ACTIVE\n"
	down   = "1: DOWN\n"
)

// machine is a node's file system, as the kernel shows its devices: links from classes and buses to
// folders below sys/devices.
type machine struct{ fstest.MapFS }

func newMachine() machine { return machine{fstest.MapFS{}} }

func (m machine) file(name, text string) { m.MapFS[name] = &fstest.MapFile{Data: []byte(text)} }

// link adds a relative link that stays within sys, as the kernel's links do.
func (m machine) link(from, to string) {
	up := strings.Repeat("../", strings.Count(path.Dir(from), "/"))
	m.MapFS[from] = &fstest.MapFile{Data: []byte(up + strings.TrimPrefix(to, "sys/")), Mode: fs.ModeSymlink}
}

// pci adds a device at the end of a path through bridges, such as
// "pci0000:00/0000:00:01.0/0000:01:00.0".
func (m machine) pci(way, vendor string, numa int) string {
	dir := "sys/devices/" + way
	m.file(dir+"/vendor", vendor+"\n")
	m.file(dir+"/numa_node", fmt.Sprintln(numa))
	m.link("sys/bus/pci/devices/"+path.Base(way), dir)
	return dir
}

// rdma adds an RDMA device with ports in these states, and its device file.
func (m machine) rdma(name, way, vendor, link, rate string, numa int, states ...string) {
	dir := m.pci(way, vendor, numa) + "/infiniband/" + name
	m.link("sys/class/infiniband/"+name, dir)
	m.link(dir+"/device", path.Dir(path.Dir(dir)))
	for i, state := range states {
		port := fmt.Sprintf("%s/ports/%d/", dir, i+1)
		m.file(port+"state", state)
		m.file(port+"link_layer", link+"\n")
		m.file(port+"rate", rate+"\n")
	}
	files, _ := fs.Glob(m, "sys/class/infiniband_verbs/uverbs*")
	m.file(fmt.Sprintf("sys/class/infiniband_verbs/uverbs%d/ibdev", len(files)), name+"\n")
}

func (m machine) efa(way, rate string, numa int) {
	bus, slot := 0, 0
	address := path.Base(way)
	if _, err := fmt.Sscanf(address[strings.Index(address, ":")+1:], "%x:%x.", &bus, &slot); err != nil {
		panic(err)
	}
	m.rdma(fmt.Sprintf("rdmap%ds%d", bus, slot), way, "0x1d0f", "Unspecified", rate, numa, active)
}

func (m machine) gpu(way string, numa int) { m.pci(way, "0x10de", numa) }

func (m machine) ethernet(name, way, state, mbps string, numa int) {
	dir := "sys/devices/" + way + "/net/" + name
	m.file("sys/devices/"+way+"/numa_node", fmt.Sprintln(numa))
	m.link("sys/class/net/"+name, dir)
	m.file(dir+"/operstate", state+"\n")
	m.file(dir+"/speed", mbps+"\n")
}

// amazon adds the software that AWS installs on its instances.
func (m machine) amazon(instance, kernel, libfabric, plugin string) {
	m.file("sys/devices/virtual/dmi/id/product_name", instance+"\n")
	m.file("proc/sys/kernel/osrelease", kernel+"\n")
	m.file("sys/module/efa/version", "2.13.0g\n")
	m.file("opt/amazon/efa_installed_packages", fmt.Sprintf("# EFA installer version: 1.37.0\n# Debug packages installed: no\n"+
		"# Packages installed:\nefa-config_1.17_all libfabric-aws-bin_9.9.9_amd64 libfabric1-aws_%s_amd64 libnccl-ofi_%s-1_amd64\n",
		libfabric, plugin))
}

// p4d is the machine that lspci shows in aws/aws-ofi-nccl#64, and topology/p4d-24xl-topo.xml in
// that repository: its switches are hidden.
func p4d() machine {
	m := newMachine()
	for i, bus := range []string{"10", "20", "90", "a0"} {
		root := "pci0000:" + bus + "/0000:" + bus
		m.efa(root+":1b.0", "100 Gb/sec (4X EDR)", i/2)
		m.gpu(root+":1c.0", i/2)
		m.gpu(root+":1d.0", i/2)
	}
	m.ethernet("ens32", "pci0000:10/0000:10:00.0", "up", "100000", 0)
	m.amazon("p4d.24xlarge", "5.10.228-219.884.amzn2.x86_64", "1.16.0~amzn3.0", "1.5.0")
	return m
}

// p5 has a GPU and four EFA devices behind each of eight bridges (topology/p5.48xl-topo.xml of
// aws-ofi-nccl).
func p5() machine {
	m := newMachine()
	for i, bus := range []int{0x4f, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb0, 0xc0} {
		bridge := fmt.Sprintf("pci0000:00/0000:00:%02x.0/0000:%02x:00.0/0000:%02x", i+1, i+1, bus)
		m.gpu(fmt.Sprintf("%s:00.0/0000:%02x:00.0", bridge, bus+1), i/4)
		for n := 1; n <= 4; n++ {
			m.efa(fmt.Sprintf("%s:%02x.0/0000:%02x:00.0", bridge, n, bus+1+n), "100 Gb/sec (4X EDR)", i/4)
		}
	}
	m.ethernet("enp71s0", "pci0000:00/0000:00:10.0/0000:47:00.0", "up", "-1", 0)
	m.amazon("p5.48xlarge", "6.8.0-1021-aws", "1.22.0amzn4.0", "1.13.2")
	return m
}

// p5en has two GPUs and four EFA devices behind each of four switches.
func p5en() machine {
	m := newMachine()
	for i, bus := range []int{0x50, 0x70, 0x90, 0xb0} {
		upstream := fmt.Sprintf("pci0000:%02x/0000:%02x:00.0/0000:%02x:00.0", bus, bus, bus+1)
		for n := range 6 {
			way := fmt.Sprintf("%s/0000:%02x:%02x.0/0000:%02x:00.0", upstream, bus+2, n, bus+3+n)
			if n < 2 {
				m.gpu(way, i/2)
			} else {
				m.efa(way, "200 Gb/sec (4X HDR)", i/2)
			}
		}
	}
	m.amazon("p5en.48xlarge", "6.1.132-147.221.amzn2023.x86_64", "2.3.1amzn1.0", "1.16.3")
	return m
}

// gb200 has each GPU in its own PCI domain, and the InfiniBand devices that manage NVLink, as on
// p6-b200.
func gb200() machine {
	m := newMachine()
	for i, domain := range []string{"0008", "0009", "0018", "0019"} {
		m.gpu(fmt.Sprintf("pci%s:00/%s:00:00.0/%s:01:00.0", domain, domain, domain), i/2)
	}
	for i, domain := range []string{"0000", "0002", "0010", "0012"} {
		m.efa(fmt.Sprintf("pci%s:00/%s:00:00.0/%s:%02x:00.0", domain, domain, domain, i+1), "400 Gb/sec (4X NDR)", i/2)
	}
	m.rdma("ibp115s0f0", "pci0006:00/0006:00:00.0/0006:73:00.0", "0x15b3", "InfiniBand", "400 Gb/sec (4X NDR)", 0, active)
	m.amazon("p6e-gb200.36xlarge", "6.8.0-1030-aws", "2.1.0amzn3.0", "1.15.0")
	return m
}

// dgx is a DGX H100 (its user guide, Network Modules). It has eight InfiniBand devices, each next
// to a GPU, and Ethernet for storage.
func dgx() machine {
	m := newMachine()
	hcas := []int{0, 3, 4, 5, 6, 9, 10, 11}
	gpus := []int{0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf}
	for i, bus := range []int{0x18, 0x40, 0x4f, 0x5e, 0x9a, 0xc0, 0xce, 0xdc} {
		upstream := fmt.Sprintf("pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0", bus-3, bus-3, bus-2)
		m.rdma(fmt.Sprintf("mlx5_%d", hcas[i]), fmt.Sprintf("%s/0000:%02x:00.0/0000:%02x:00.0", upstream, bus-1, bus), "0x15b3",
			"InfiniBand", "400 Gb/sec (4X NDR)", i/4, active)
		m.gpu(fmt.Sprintf("%s/0000:%02x:02.0/0000:%02x:00.0", upstream, bus-1, gpus[i]), i/4)
	}
	for i, name := range []string{"mlx5_1", "mlx5_7"} {
		bus := []string{"29", "aa"}[i]
		way := "pci0000:" + bus + "/0000:" + bus + ":01.0/0000:" + bus + ":00.0"
		m.rdma(name, way, "0x15b3", "Ethernet", "200 Gb/sec (4X HDR)", i, active)
		m.ethernet("ens"+bus+"np0", way, "up", "200000", i)
	}
	m.ethernet("eno3", "pci0000:00/0000:00:10.0/0000:0b:00.0", "down", "-1", 0)
	return m
}

// roce is a machine with RoCE devices, and with a software device, which is on no PCI bus.
func roce() machine {
	m := newMachine()
	m.rdma("mlx5_0", "pci0000:16/0000:16:01.0/0000:18:00.0", "0x15b3", "Ethernet", "100 Gb/sec (4X EDR)", 0, active)
	m.gpu("pci0000:16/0000:16:02.0/0000:1a:00.0", 0)
	m.file("sys/class/infiniband/rxe0/ports/1/state", down)
	return m
}

func unplugged() machine {
	m := newMachine()
	m.rdma("mlx5_0", "pci0000:16/0000:16:01.0/0000:18:00.0", "0x15b3", "InfiniBand", "2.5 Gb/sec (1X SDR)", 0, down, down)
	return m
}

func laptop() machine {
	m := newMachine()
	m.ethernet("wlp0s20f3", "pci0000:00/0000:00:14.3", "up", "", -1)
	m.file("sys/class/net/lo/operstate", "unknown\n")
	return m
}

func machines() map[string]machine {
	return map[string]machine{
		"p4d": p4d(), "p5": p5(), "p5en": p5en(), "gb200": gb200(), "dgx": dgx(), "roce": roce(), "unplugged": unplugged(), "laptop": laptop(),
	}
}
