package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// library is NVML, and card is one of NVML's devices. Both builds implement them.
type library interface {
	// open loads and initializes NVML.
	open() error
	count() (int, error)
	card(i int) (card, error)
}

type card interface {
	uuid() (string, error)
	name() (string, error)
	pci() (address, error)
	// memory is in bytes; used includes the driver's own memory.
	memory() (used, total int64, err error)
	// holders are the compute processes in any order.
	holders() ([]Holder, error)
	// split reports whether the GPU is in MIG mode. It then has up to slots instances, numbered
	// with gaps.
	split() (bool, error)
	slots() (int, error)
	instance(slot int) (card, error)
	// fields fills in the given fields, each with an error of its own.
	fields([]fieldValue) error
	// throttle has the bits of nvmlClocksEventReasons.
	throttle() (uint64, error)
	// lanes are the PCIe lanes in use and the most possible.
	lanes() (now, most int, err error)
	// fabric returns the state of the registration with the NVSwitch fabric, and its result.
	fabric() (state uint8, status code, err error)
	// busy is the percentage of the driver's last sample period in which a kernel ran.
	busy() (percent uint32, err error)
	// draw and limit are for drivers whose fields lack these values.
	draw() (milliwatts uint32, err error)
	limit() (milliwatts uint32, err error)
	// heat is in degrees Celsius.
	heat() (degrees uint32, err error)
}

type address struct{ domain, bus, device uint32 }

// String writes the address as sysfs does. GPUs are function 0.
func (a address) String() string { return fmt.Sprintf("%04x:%02x:%02x.0", a.domain, a.bus, a.device) }

func (a address) compare(b address) int {
	return cmp.Or(cmp.Compare(a.domain, b.domain), cmp.Compare(a.bus, b.bus), cmp.Compare(a.device, b.device))
}

// code is one of NVML's return codes (nvmlReturn_t in nvml.h).
type code int32

const (
	success          code = 0
	notSupported     code = 3
	noPermission     code = 4
	notFound         code = 6
	insufficientSize code = 7
	driverNotLoaded  code = 9
	libraryNotFound  code = 12
	functionNotFound code = 13
	gpuIsLost        code = 15
	resetRequired    code = 16
	versionMismatch  code = 18
)

// failure is an unsuccessful return code with the driver's text.
type failure struct {
	code code
	text string
}

func (f failure) Error() string { return fmt.Sprintf("%s (NVML error %d)", f.text, f.code) }

// is reports whether err is one of the codes.
func is(err error, codes ...code) bool {
	f, ok := errors.AsType[failure](err)
	return ok && slices.Contains(codes, f.code)
}

// survey lists all devices, or says why there is none.
func survey(lib library) (devices []Device, why string, err error) {
	if why, err := start(lib); why != "" || err != nil {
		return nil, why, err
	}
	n, err := lib.count()
	if err != nil {
		return nil, "", fmt.Errorf("count GPUs: %w", err)
	}
	var boards []board
	for i := range n {
		b, err := open(lib, i)
		if is(err, noPermission) {
			continue // a GPU of another job, excluded by the cgroup's device rules
		}
		if err != nil {
			return nil, "", fmt.Errorf("GPU index %d of %d: %w%s", i, n, err, remedy(err))
		}
		boards = append(boards, b)
	}
	devices = number(boards)
	if len(devices) == 0 {
		return nil, none(n, len(boards)), nil
	}
	return devices, "", nil
}

// start opens the library, or says why there is no driver to ask.
func start(lib library) (why string, err error) {
	err = lib.open()
	switch {
	case is(err, libraryNotFound):
		return noLibrary, nil
	case is(err, driverNotLoaded):
		return "no NVIDIA driver: libnvidia-ml.so.1 is there, the kernel module is not loaded", nil
	case err != nil:
		return "", fmt.Errorf("start NVML: %w%s", err, remedy(err))
	}
	return "", nil
}

// none says why a driver shows no device. The driver counts GPUs, and lets this process use some of
// these; either number may be 0.
func none(counted, usable int) string {
	switch {
	case counted == 0:
		return "the NVIDIA driver finds no GPU"
	case usable == 0:
		return fmt.Sprintf("no permission for any of the %d GPUs", counted)
	}
	return fmt.Sprintf("all %d GPUs are in MIG mode and have no instances", usable)
}

// board is one GPU: itself, or its MIG instances.
type board struct {
	at      address
	devices []Device
}

// number puts the devices in PCI bus order.
func number(boards []board) []Device {
	slices.SortStableFunc(boards, func(a, b board) int { return a.at.compare(b.at) })
	var devices []Device
	for _, b := range boards {
		devices = append(devices, b.devices...)
	}
	for i := range devices {
		devices[i].Index = i
	}
	return devices
}

func open(lib library, i int) (board, error) {
	c, err := lib.card(i)
	if err != nil {
		return board{}, err
	}
	at, err := c.pci()
	if err != nil {
		return board{}, fmt.Errorf("PCI address: %w", err)
	}
	cards, split, err := parts(c)
	if err != nil {
		return board{}, err
	}
	b, health, power := board{at: at}, examine(c), power(c)
	for _, c := range cards {
		d, err := describe(c)
		if err != nil {
			return board{}, err
		}
		d.PCI, d.MIG, d.Health, d.Power = at.String(), split, health, power
		b.devices = append(b.devices, d)
	}
	return b, nil
}

// parts are the GPU itself, or the instances that it is split into.
func parts(c card) (cards []card, split bool, err error) {
	split, err = c.split()
	if err != nil && !is(err, notSupported, functionNotFound) {
		return nil, false, fmt.Errorf("MIG mode: %w", err)
	}
	if !split {
		return []card{c}, false, nil
	}
	if cards, err = instances(c); err != nil {
		return nil, false, fmt.Errorf("MIG instances: %w", err)
	}
	return cards, true, nil
}

func instances(c card) (cards []card, err error) {
	n, err := c.slots()
	if err != nil {
		return nil, err
	}
	for slot := range n {
		instance, err := c.instance(slot)
		if is(err, notFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("slot %d: %w", slot, err)
		}
		cards = append(cards, instance)
	}
	return cards, nil
}

// describe asks for everything but the Index. If a driver does not offer memory or holders, these
// stay unknown.
func describe(c card) (Device, error) {
	uuid, err := c.uuid()
	if err != nil {
		return Device{}, fmt.Errorf("UUID: %w", err)
	}
	name, err := c.name()
	if err != nil {
		return Device{}, fmt.Errorf("name: %w", err)
	}
	_, memory, err := c.memory()
	if err != nil && !is(err, notSupported) {
		return Device{}, fmt.Errorf("memory: %w", err)
	}
	holders, err := c.holders()
	if err != nil && !is(err, notSupported, noPermission) {
		return Device{}, fmt.Errorf("compute processes: %w", err)
	}
	pids := []int(nil)
	for _, h := range holders {
		if !mpsServer(h.PID) {
			pids = append(pids, h.PID)
		}
	}
	slices.Sort(pids)
	return Device{UUID: uuid, Name: name, Memory: memory, Holders: slices.Compact(pids)}, nil
}

// remedy is a hint for errors that a person can repair.
func remedy(err error) string {
	switch {
	case is(err, gpuIsLost, resetRequired):
		return "; hint: take the node out, then reset the GPU (nvidia-smi --gpu-reset) or reboot"
	case is(err, versionMismatch):
		return "; hint: the driver was upgraded under a loaded kernel module: reload it or reboot"
	case is(err, functionNotFound):
		return "; hint: this build needs a driver of R510 or later"
	case is(err, noPermission):
		return "; hint: check the permissions of /dev/nvidiactl"
	}
	return ""
}
