package nccl

import (
	"bytes"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/internal/host/lazyregexp"
)

// Versions are the versions of the software below NCCL on EFA, in the form in which files contain
// them, such as "1.22.0" and "1.7.3-aws"; empty if unknown.
type Versions struct {
	// Installer is the version of AWS's package that contains all the others.
	Installer string
	Libfabric string
	// Plugin is aws-ofi-nccl, through which NCCL uses libfabric.
	Plugin string
	// Driver is the version of the kernel module efa. Kernel is the kernel's release.
	Driver, Kernel string
	// Machine is the instance type, such as p5.48xlarge. The plugin uses it too (get_platform_type
	// in its src/platform-aws.c).
	Machine string
}

// The files from which the versions are read, the most reliable first. The name of libfabric's
// library does not help: libfabric.so.1.19.0 is version 1.16.0 (aws/aws-ofi-nccl#141).
const packages = "opt/amazon/efa_installed_packages"

var (
	pkgconfigs = []string{
		"opt/amazon/efa/lib64/pkgconfig/libfabric.pc", "opt/amazon/efa/lib/pkgconfig/libfabric.pc",
	}
	plugins = []string{
		"opt/amazon/ofi-nccl/lib/libnccl-net.so", "opt/amazon/ofi-nccl/lib64/libnccl-net.so",
		"opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so", "opt/amazon/ofi-nccl/lib/aarch64-linux-gnu/libnccl-net.so",
		"opt/aws-ofi-nccl/lib/libnccl-net.so", "opt/aws-ofi-nccl/install/lib/libnccl-net.so",
	}
)

// ReadVersions reads a few small files and at most one library below root, a node's file system.
func ReadVersions(root fs.FS) Versions {
	v := parsePackages(attribute(root, "", packages))
	v.Driver = attribute(root, "sys/module/efa", "version")
	v.Kernel = attribute(root, "proc/sys/kernel", "osrelease")
	v.Machine = attribute(root, "sys/devices/virtual/dmi/id", "product_name")
	for _, file := range pkgconfigs {
		if v.Libfabric == "" {
			v.Libfabric = parsePkgconfig(attribute(root, "", file))
		}
	}
	for _, file := range plugins {
		// The version in the library counts, even if the list of packages has another one.
		if found := pluginVersion(root, file); found != "" {
			v.Plugin = found
			break
		}
	}
	return v
}

// version matches a version as it appears in these files: numbers, then any characters except
// blanks.
const version = `(\d{1,9}(?:\.\d{1,9})+[0-9A-Za-z.~+-]{0,32})`

var (
	installer = lazyregexp.New(`(?m)^# EFA installer version: ` + version)
	// Debian's packages are libfabric1-aws_1.16.0~amzn3.0_amd64 and libnccl-ofi_1.19.0-1_amd64,
	// RPM's libfabric-aws-1.17.0-1.el8.x86_64 and libnccl-ofi-1.14.0-1.x86_64.
	libfabricPackage = lazyregexp.New(`(?:^|\s)libfabric1?(?:-aws)?[_-](\d{1,9}(?:\.\d{1,9})+)`)
	pluginPackage    = lazyregexp.New(`(?:^|\s)libnccl-ofi(?:-ngc-v\d)?[_-](\d{1,9}(?:\.\d{1,9})+)`)
	pkgconfig        = lazyregexp.New(`(?m)^Version:\s*` + version)
	pluginString     = lazyregexp.New(`aws-ofi-nccl ` + version)
)

// parsePackages reads the EFA installer's list of packages.
func parsePackages(text string) Versions {
	return Versions{
		Installer: first(installer, text), Libfabric: first(libfabricPackage, text), Plugin: first(pluginPackage, text),
	}
}

func parsePkgconfig(text string) string { return first(pkgconfig, text) }

func first(pattern *lazyregexp.Regexp, text string) string {
	if m := pattern.Get().FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

// largest bounds the part of a library that is read, in bytes. The plugin has about two million.
const largest = 32 << 20

// pluginVersion finds the version in the text that the plugin prints at its start, such as "NET/OFI
// Initializing aws-ofi-nccl 1.17.1".
func pluginVersion(root fs.FS, file string) string {
	f, err := root.Open(file)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // it was only read
	all, err := io.ReadAll(io.LimitReader(f, largest))
	if err != nil {
		return ""
	}
	for {
		i := bytes.Index(all, []byte("aws-ofi-nccl "))
		if i < 0 {
			return ""
		}
		if v := first(pluginString, string(all[i:min(len(all), i+64)])); v != "" {
			return v
		}
		all = all[i+1:]
	}
}

// older reports whether a version is known and precedes another one, number by number. It ignores
// the text after the numbers.
func older(v, than string) bool {
	if v == "" {
		return false
	}
	a, b := numbers(v), numbers(than)
	for i := range b {
		switch {
		case i == len(a):
			return false // 1.18 is 1.18.0
		case a[i] != b[i]:
			return a[i] < b[i]
		}
	}
	return false
}

// oldest returns the older of two versions. If one of them is unknown, it returns the other.
func oldest(a, b string) string {
	if a == "" || older(b, a) {
		return b
	}
	return a
}

// numbers returns the numbers at the start of a version: 1, 16 and 0 for 1.16.0~amzn3.0.
func numbers(v string) (out []int) {
	for part := range strings.SplitSeq(v, ".") {
		digits := len(part) - len(strings.TrimLeft(part, "0123456789"))
		n, err := strconv.Atoi(part[:digits])
		if err != nil {
			break
		}
		out = append(out, n)
		if digits < len(part) {
			break
		}
	}
	return out
}
