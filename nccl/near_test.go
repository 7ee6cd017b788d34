package nccl_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/nccl"
)

func TestNear(t *testing.T) {
	at := func(path string, numa int) nccl.Place { return nccl.Place{Path: "devices/" + path, NUMA: numa} }
	gpu := at("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1b:00.0", 0)
	for _, c := range []struct {
		other nccl.Place
		want  string
	}{
		{gpu, "PIX"},
		{at("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0", 0), "PIX"},
		{at("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0/0000:19:00.0/0000:1a:00.0", 0), "PXB"},
		{at("pci0000:15/0000:15:02.0/0000:1c:00.0", 0), "PHB"},
		{at("pci0000:25/0000:25:01.0/0000:26:00.0", 0), "NODE"},
		{at("pci0000:85/0000:85:01.0/0000:86:00.0", 1), "SYS"},
		{at("pci0000:85/0000:85:01.0/0000:86:00.0", -1), "SYS"},
		{nccl.Place{NUMA: -1}, "SYS"},
	} {
		if got, back := nccl.Near(gpu, c.other).String(), nccl.Near(c.other, gpu).String(); got != c.want || back != c.want {
			t.Errorf("%s is %s, and back %s, want %s", c.other.Path, got, back, c.want)
		}
	}
	if none := (nccl.Place{NUMA: -1}); nccl.Near(none, none) != nccl.SYS {
		t.Error("what is nowhere is near")
	}
}

func TestNearest(t *testing.T) {
	for _, c := range []struct {
		name, gpu string
		fabric    nccl.Fabric
		want      string
	}{
		{"p4d", "0000:90:1d.0", nccl.EFA, "rdmap144s27 PHB"},
		{"p5", "0000:61:00.0", nccl.EFA, "rdmap100s0 rdmap101s0 rdmap98s0 rdmap99s0 PIX"},
		{"p5en", "0000:54:00.0", nccl.EFA, "rdmap85s0 rdmap86s0 rdmap87s0 rdmap88s0 PIX"},
		{"gb200", "0018:01:00.0", nccl.EFA, "rdmap3s0 rdmap4s0 NODE"},
		{"dgx", "0000:c3:00.0", nccl.InfiniBand, "mlx5_9 PIX"},
		{"roce", "0000:1a:00.0", nccl.RoCE, "mlx5_0 PHB"},
		{"laptop", "0000:01:00.0", nccl.EFA, "SYS"},
	} {
		sys, err := fs.Sub(machines()[c.name], "sys")
		if err != nil {
			t.Fatal(err)
		}
		names, distance := nccl.Nearest(nccl.GPUPlace(sys, c.gpu), nccl.NICs(sys, anyone), c.fabric)
		if got := strings.TrimSpace(strings.Join(names, " ") + " " + distance.String()); got != c.want {
			t.Errorf("%s has %s nearest to %s, want %s", c.name, got, c.gpu, c.want)
		}
	}
}

func TestNICs(t *testing.T) {
	sys, err := fs.Sub(dgx(), "sys")
	if err != nil {
		t.Fatal(err)
	}
	nics := nccl.NICs(sys, anyone)
	if len(nics) != 11 {
		t.Errorf("an interface of an RDMA device counts twice, or one is missing: %+v", nics)
	}
	first, last := nics[0], nics[len(nics)-1]
	if first.Name != "mlx5_0" || first.PCI() != "0000:18:00.0" || first.Gbps != 400 || first.NUMA != 0 || first.Device != "uverbs0" || first.Why != "" {
		t.Errorf("%+v", first)
	}
	if last.Name != "eno3" || last.Fabric != nccl.TCP || last.Why != "it is down" || last.Gbps != 0 {
		t.Errorf("%+v", last)
	}
}
