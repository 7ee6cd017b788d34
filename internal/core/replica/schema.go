package replica

import "github.com/golaunch/golaunch/internal/core/snapshot"

// snapshotFormat begins a snapshot. It changes when the schema does.
const snapshotFormat = "golaunch-snapshot-8\n"

// schema has the names by which a snapshot knows the state; see [snapshot.NewSchema]. They are part
// of the format, and stay when a Go identifier is renamed.
var schema = snapshot.NewSchema(`
replica.State = replica: index epoch cluster members capacity jobs ended avoided timers
cluster.State = cluster: nodes jobs onlyJob avoided submitted queue usable free dirty started
	limits used yielding spent
cluster.purse = purse: user priority
cluster.clusterNode = clusterNode: facts free drained holders freeGPUs counts kind since
charge.Ledger = chargeLedger: since idle users
charge.Pair = chargePair: user kind
charge.Time = chargeTime: nodes gpus
placement.Node = placementNode: name addr others gpus cpus memory labels
placement.GPU = placementGpu: index uuid pci memory heldBy
cluster.entry = entry: spec state seq queue inner wait held leaving ended done gpus least started
	yields until charged
cluster.Spec = clusterSpec: job within gpus backfill reserve colocated onlyJob priority user
job.Spec = jobSpec: id request restart maxRestarts refillAfter excludeAfter excludeFor growAfter
	drainTime exitCodes rules grace fixedPool pool groups minGroups lostRanks
placement.Request = request: minNodes maxNodes perNode gpu perGpu cpus memory strategy order keep
	sharedAddr
placement.Order = order: by list
jobstate.State = job: spec roster plan progress masters shortage budget verdicts suspects departures
	saves timers quorum=cohort ending
jobstate.roster = roster: nodes addrs gpus spares joined lost loss
jobstate.jobNode = jobNode: node nodeRank ran leaves
jobstate.departure = departure: node within why loose alarm at afterSave signal
jobstate.plan = jobPlan: slots vacant world roles differing growth
jobstate.slot = slot: group vacant role roleFirst
placement.Group = group: node nodeRank bundles
placement.Bundle = bundle: rank localRank gpu
job.World = world: worldSize nodes masterAddr masterPort uniform maxRestarts localSize gpus
	roleSize roleFirst network groups group firstRank firstNode
jobstate.progress = progress: units done pids meeting open live ready
jobstate.unit = unit: id attempt phase first members counts imports stall told cause failing
	early notice tally abandoned
jobstate.counts = unitCounts: left live starting lost
jobstate.member = jobMember: live started ready left stalled idle catches
job.Stalled = stalled: node unit attempt ranks behind more moving
job.Still = still: rank for beat step does
job.Client = client: addr pid key
job.Imports = imports: waited took forked forking why modules
report.Module = module: name seconds
jobstate.stall = stall: members ranks told
jobstate.fault = fault: failure others told decided departs weighed
report.Failure = failure: node rank gpu attempt exit at lived step further why tail traceback
	kernel hung verdict
report.GPU = reportGpu: index uuid heldBy
report.Exit = exit: code signal oom spawn
report.Verdict = verdict: action cause title quote from line victim remedy
verdict.Early = early: rank more node at
jobstate.notice = notice: departure ready saved due reprieved catching
jobstate.masters = masters: of questions
jobstate.master = master: home addr port question ported launched asked pending unreached missed
job.Prepare = prepare: node unit attempt fresh peers ranks
jobstate.shortage = shortage: homeless enough text queued
jobstate.budget = budget: attempts restarts tally failing
jobstate.tally = tally: streak spent recurrence
jobstate.verdicts = verdicts: weighed
verdict.Recurrence = recurrence: signature count step
jobstate.suspects = suspects: blamed excluded
jobstate.exclusion = exclusion: code text
jobstate.departures = departures: announced end endAt toSave
report.Result = result: code ending reason cause attempts restarts goodput start
	saves
report.Start = start: attempt phases modules
report.StartPhase = startPhase: phase seconds node rank
report.Saves = reportSaves: last inFlight every atRisk afterNotice
report.Goodput = goodput: unit goodput hours training lost starting stopping backoff waiting
	importing interruptions costs
report.Cost = cost: cause node interruptions hours lost
jobstate.growth = growth: partial due
jobstate.saves = saves: last every inFlight
jobstate.inFlight = inFlight: save writers failed
jobstate.writer = jobWriter: node unit
report.Save = reportSave: path format step bytes began ended
jobstate.timers = timers: newest seq
jobstate.cohort = quorum: id members why
lighthouse.Replica = lighthouseReplica: id group
jobstate.ending = ending: cancels signal fatal why result finished
cluster.queue = queue: reservation waiting open growing first shadow dirty better
cluster.wait = wait: queued repair told behind tried nodes gpus skipped turn over ahead
capacity.Pool = capacityPool: asked claims backoffs
capacity.Claim = capacityClaim: tag seq kind node requested joined lost released left failed why
capacity.Backoff = capacityBackoff: failures until why
replica.Member = replicaMember: node instance patience drained
replica.Record = record: submission since over readmits reason result granted nodes ledger
	clock history
replica.startClock = startClock: start phase since took
replica.Submission = submission: spec task workspace title detached key submitter
	placementTimeout lastCall backoffMin backoffMax
report.Workspace = workspace: id bytes files
placement.Plan = placementPlan: groups
goodput.Ledger = ledger: now units used accounts others steps lost back
	saved ranks saves
goodput.span = span: use ranks since blame
goodput.account = account: cause node times open cost lost
goodput.sample = sample: step trained
report.Moment = moment: at attempt to cause node reason
replica.TimerID = timerID: of kind number
replica.Timer = timer: at seq
`)
