{{/* Names start with this. 40 characters: a StatefulSet name may have 52, a Service name 63, and suffixes come after. */}}
{{- define "pidkeeper.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Derived without chance and without asking the cluster, so that every render of a release gives the same id. */}}
{{- define "pidkeeper.clusterId" -}}
{{- .Values.clusterId | default (printf "%s/%s" .Release.Namespace .Release.Name | sha256sum | trunc 22) -}}
{{- end -}}

{{- define "pidkeeper.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* What selectors and claim templates hold: immutable, so no chart version. Takes a dict of root and component. */}}
{{- define "pidkeeper.selectorLabels" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "pidkeeper.commonLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "pidkeeper.labels" -}}
{{ include "pidkeeper.selectorLabels" . }}
{{ include "pidkeeper.commonLabels" .root }}
{{- end -}}

{{/* Base URL of controller `id`, by its name in the headless service: it resolves before the pod is ready. */}}
{{- define "pidkeeper.controllerHost" -}}
{{- $name := include "pidkeeper.fullname" .root -}}
{{- printf "%s-controller-%v.%s-controller-headless.%s.svc" $name .id $name .root.Release.Namespace -}}
{{- end -}}

{{- define "pidkeeper.podAnnotations" -}}
checksum/config: {{ include (print .root.Template.BasePath "/" .component "-configmap.yaml") .root | sha256sum }}
{{- if .root.Values.metrics.scrapeAnnotations }}
prometheus.io/scrape: "true"
prometheus.io/port: "8081"
prometheus.io/path: /metrics
{{- end }}
{{- end -}}

{{/* The pod settings that controllers and agents share; they satisfy the restricted Pod Security Standard. */}}
{{- define "pidkeeper.podSpec" -}}
serviceAccountName: {{ include "pidkeeper.fullname" .root }}
automountServiceAccountToken: false
# Service links would put PIDKEEPER_... variables of other services into the environment that configures the process.
enableServiceLinks: false
terminationGracePeriodSeconds: 30
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "pidkeeper.container" -}}
image: {{ include "pidkeeper.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* Liveness is local only: a member without a leader must not be restarted, or no quorum can form again. Probes have a
port of their own, which callers of the other ports cannot fill. */}}
{{- define "pidkeeper.probes" -}}
startupProbe:
  httpGet:
    path: /livez
    port: probe
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 90
livenessProbe:
  httpGet:
    path: /livez
    port: probe
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet:
    path: /readyz
    port: probe
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- end -}}
