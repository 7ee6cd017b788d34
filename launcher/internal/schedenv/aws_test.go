package schedenv_test

import (
	"testing"

	"github.com/golaunch/golaunch/launcher/internal/schedenv"
)

// batchNode has the variables of
// https://docs.aws.amazon.com/batch/latest/userguide/mnp-env-vars.html and job_env_vars.html.
var batchNode = given{host: "ip-10-0-1-17.ec2.internal", env: `AWS_BATCH_JOB_ID=a9e8a4f3-1c2b-4d5e-8f90-0123456789ab#1
	AWS_BATCH_JOB_ATTEMPT=3
	AWS_BATCH_JOB_NUM_NODES=4
	AWS_BATCH_JOB_NODE_INDEX=1
	AWS_BATCH_JOB_MAIN_NODE_INDEX=0
	AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS=10.0.1.9`}

func TestBatch(t *testing.T) {
	want := schedenv.Place{
		By: "AWS Batch", Job: "batch-a9e8a4f3-1c2b-4d5e-8f90-0123456789ab", Restarts: 2, Nodes: 4, Node: 1,
		Head: "10.0.1.9", Port: 29400, Each: true,
	}
	head := want
	head.Node, head.Head = 0, "ip-10-0-1-17.ec2.internal"
	around := want
	around.Node = 3
	finds(t, map[string]found{
		"a child node":         {batchNode, want},
		"the main node":        {batchNode.and("AWS_BATCH_JOB_NODE_INDEX=0", "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS="), head},
		"another main node":    {batchNode.and("AWS_BATCH_JOB_MAIN_NODE_INDEX=2"), around},
		"the main node, not 0": {batchNode.and("AWS_BATCH_JOB_MAIN_NODE_INDEX=1"), head},
	})
	refuses(t, map[string]given{
		"AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS is not set": batchNode.and("AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS="),
		"AWS_BATCH_JOB_MAIN_NODE_INDEX 9 of 4 nodes":              batchNode.and("AWS_BATCH_JOB_MAIN_NODE_INDEX=9"),
		`AWS_BATCH_JOB_ATTEMPT is "0", not a number from 1`:       batchNode.and("AWS_BATCH_JOB_ATTEMPT=0"),
		"AWS_BATCH_JOB_NUM_NODES is not set":                      batchNode.and("AWS_BATCH_JOB_NUM_NODES="),
	})
}

// sageMakerHost has the variables of ENVIRONMENT_VARIABLES.md in
// https://github.com/aws/sagemaker-training-toolkit.
var sageMakerHost = given{host: "algo-2", env: `TRAINING_JOB_NAME=llm-2026-05-31-06-27-15-511
	TRAINING_JOB_ARN=arn:aws:sagemaker:us-east-1:123456789012:training-job/llm-2026-05-31-06-27-15-511
	SM_HOSTS=["algo-1","algo-2"]
	SM_CURRENT_HOST=algo-2
	SM_NUM_GPUS=8
	SM_NETWORK_INTERFACE_NAME=eth0
	SM_RESOURCE_CONFIG={"current_host":"algo-2","hosts":["algo-1","algo-2"],"network_interface_name":"eth0"}`}

func TestSageMaker(t *testing.T) {
	want := schedenv.Place{
		By: "SageMaker", Job: "llm-2026-05-31-06-27-15-511", Nodes: 2, Node: 1, Names: []string{"algo-1", "algo-2"},
		Name: "algo-2", Head: "algo-1", Port: 29400, Interface: "eth0", Each: true,
	}
	bare := sageMakerHost.and("SM_RESOURCE_CONFIG=")
	bare.files = map[string]string{"opt/ml/input/config/resourceconfig.json": `{"current_host":"algo-2",
		"current_instance_type":"ml.p4d.24xlarge","hosts":["algo-1","algo-2"],"network_interface_name":"eth0"}`}
	finds(t, map[string]found{"the toolkit's variables": {sageMakerHost, want}, "the file alone": {bare, want}})
	refuses(t, map[string]given{
		"TRAINING_JOB_ARN is set, but open opt/ml": sageMakerHost.and("SM_RESOURCE_CONFIG="),
		"read resourceconfig.json":                 sageMakerHost.and("SM_RESOURCE_CONFIG=[]"),
		`current_host "algo-3"`:                    sageMakerHost.and(`SM_RESOURCE_CONFIG={"current_host":"algo-3"}`),
		"TRAINING_JOB_NAME is not set":             sageMakerHost.and("TRAINING_JOB_NAME="),
	})
}
