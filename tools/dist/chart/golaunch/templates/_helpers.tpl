{{- define "golaunch.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "golaunch.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default (.Chart.AppVersion | replace "+" ".") }}
{{- end }}

{{- define "golaunch.labels" -}}
app.kubernetes.io/name: golaunch
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- end }}

{{- define "golaunch.selector" -}}
app.kubernetes.io/name: golaunch
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "golaunch.coordinators" -}}
{{- $name := include "golaunch.name" . -}}
{{- range $i := until (int .Values.coordinator.replicas) -}}
{{- if $i }},{{ end }}{{ $name }}-coordinator-{{ $i }}.{{ $name }}-coordinator.{{ $.Release.Namespace }}.svc:29400
{{- end -}}
{{- end }}

{{- define "golaunch.token" -}}
- name: GOLAUNCH_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ .Values.token.existingSecret | default (printf "%s-token" (include "golaunch.name" .)) }}
      key: token
{{- end }}

{{- define "golaunch.locked" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}
