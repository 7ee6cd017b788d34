package schedenv

import "io/fs"

// volcano reads what Volcano's env and svc plugins put into the pods of a job
// (docs/user-guide/how_to_use_svc_plugin.md): variables, and the file /etc/volcano/TASK.host with
// the hosts of a task. The pods of one task are the nodes. The pytorch plugin makes the pods of a
// master and of workers the nodes of one job, so master comes before volcano among the finders.
func (r *reader) volcano() {
	name := "VC_TASK_INDEX"
	if !r.has(name) {
		name = "VK_TASK_INDEX"
	}
	index := r.number(name, 0)
	files, err := fs.Glob(r.FS, "etc/volcano/*.host")
	switch {
	case err != nil || len(files) == 0:
		r.fail("/etc/volcano names no hosts: add the svc plugin to the job, or give --rendezvous HOST:PORT")
	case len(files) > 1:
		r.fail("the job has %d tasks: add the pytorch plugin, which numbers the pods of two, or give --rendezvous HOST:PORT",
			len(files))
	default:
		r.task(files[0], index)
	}
}

func (r *reader) task(file string, index int) {
	hosts, err := r.hosts(file)
	if err != nil {
		r.fail("read /%s: %v", file, err)
	}
	r.among(hosts, "/"+file)
	if r.err == nil && r.place.Node != index {
		r.fail("/%s has this host, %s, in place %d, and the task's index is %d", file, r.Hostname, r.place.Node, index)
	}
	pod := r.pod()
	r.place.Job, r.place.Names, r.place.Name, r.place.Port = jobName(pod.subdomain, pod.namespace), nil, "", port
}
