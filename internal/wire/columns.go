package wire

import "github.com/golaunch/golaunch/launcher/report"

// numColumns is how many quantities a [report.Usage] has.
const numColumns = 23

// columns are the quantities of u in the order of their numbers in a Track. These are part of the
// protocol: a new one goes to the end.
func columns(u *report.Usage) [numColumns]*float64 {
	return [...]*float64{
		&u.CPUs, &u.Memory, &u.MemoryTotal, &u.IO, &u.Faults, &u.Processes, &u.Step, &u.Total, &u.StepTime,
		&u.BeatAge, &u.SilenceAge, &u.Lines, &u.LogBytes,
		&u.GPUUse, &u.GPUMemory, &u.GPUMemoryTotal, &u.GPUPower, &u.GPUPowerLimit, &u.GPUTemperature, &u.Xids,
		&u.Received, &u.Sent, &u.Ranks,
	}
}
