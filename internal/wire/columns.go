package wire

import "github.com/golaunch/golaunch/launcher/report"

// numColumns is how many quantities a [report.Usage] has.
const numColumns = 23

// columns returns the quantities of u in the order of their numbers in a Track. The numbers are
// part of the protocol, so a new quantity goes to the end.
func columns(u *report.Usage) [numColumns]*float64 {
	return [...]*float64{
		&u.CPUs, &u.Memory, &u.MemoryTotal, &u.IO, &u.Faults, &u.Processes, &u.Step, &u.Total, &u.StepTime,
		&u.BeatAge, &u.SilenceAge, &u.Lines, &u.LogBytes,
		&u.GPUUse, &u.GPUMemory, &u.GPUMemoryTotal, &u.GPUPower, &u.GPUPowerLimit, &u.GPUTemperature, &u.Xids,
		&u.Received, &u.Sent, &u.Ranks,
	}
}
