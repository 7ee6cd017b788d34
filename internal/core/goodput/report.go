package goodput

import (
	"cmp"
	"slices"
	"time"

	"github.com/golaunch/golaunch/launcher/report"
)

// Report returns the ledger at a time. unit says what the hours are of: "GPU" or "rank". It costs
// O(units). It returns nil if the job has had no time yet.
func (l *Ledger) Report(at time.Time, unit string) *report.Goodput {
	now := max(l.now, at.UnixMilli())
	used, open := l.used, map[*account]int64{}
	for _, u := range l.units {
		used[u.use] += u.until(now)
		if u.blame != nil {
			open[u.blame] += u.until(now)
		}
	}
	r := &report.Goodput{
		Unit: unit, Training: hours(used[Training] - l.lost), Lost: hours(l.lost), Starting: hours(used[Starting]),
		Stopping: hours(used[Stopping]), Backoff: hours(used[Backoff]), Waiting: hours(used[Waiting]), Importing: hours(used[Importing]),
	}
	whole := int64(0)
	for _, spent := range used {
		whole += spent
	}
	if whole == 0 {
		return nil
	}
	r.Hours, r.Goodput = hours(whole), float64(used[Training]-l.lost)/float64(whole)
	for _, a := range l.accounts {
		r.Costs = append(r.Costs, a.read(open[a]))
	}
	slices.SortStableFunc(r.Costs, func(a, b report.Cost) int { return cmp.Compare(b.Total(), a.Total()) })
	if l.others.times > 0 {
		r.Costs = append(r.Costs, l.others.read(open[&l.others]))
	}
	for _, c := range r.Costs {
		r.Interruptions += c.Interruptions
	}
	return r
}

func (a *account) read(open int64) report.Cost {
	return report.Cost{Cause: cmp.Or(a.cause, report.OtherCosts), Node: a.node, Interruptions: a.times, Hours: hours(a.cost + open), Lost: hours(a.lost)}
}

func hours(ms int64) float64 { return float64(ms) / float64(time.Hour.Milliseconds()) }
